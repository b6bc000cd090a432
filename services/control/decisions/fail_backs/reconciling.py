"""The way of one topic of a fail-back from where it is to READY: strays to their place, and the topic made again.

Theory of operation
1. An event has the part of the topic's log that control compares. Then the strays go to their place (`strays.py`), and
   an event says that they are there. If the log has grown meanwhile, control compares the rest.
2. If the log is no prefix of the log of the clients, an event with the topic's settings comes first. Then control
   deletes the topic, and makes it again. An empty topic was made again already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from prometheus_client import Counter

from mesh.routing import UpstreamCluster
from mesh.rpc import fail_backs
from mesh.topic_logs.batches import batches
from mesh.topic_logs.brokers import READ_UNCOMMITTED, Brokers
from mesh.topic_logs.pace import Pace
from services.control.decisions.fail_backs.strays import FETCH_BYTES, Comparison, Found
from services.control.domain.errors import NotAllowed
from services.control.domain.fail_backs.fail_backs import (
    APPENDED,
    COPY_ON,
    READY,
    RECREATE,
    RECREATING,
    STRAYS_SUFFIX,
    TOPIC_RECONCILING,
    Ends,
    changed,
    closed,
    left,
    to_compare,
    with_found,
)
from services.control.upstream.connections import Connections

GONE_WITHIN, GONE_EVERY = 30.0, 0.1
"""Seconds in which a deleted topic disappears, and between two looks."""
MARKERS = 100, 10_000
"""So many offsets before the end of a copy control looks for the last records: those behind it are markers."""
FOR_EVER = {"retention.ms": "-1"}
"""Settings of a topic of strays: their times are old, and nobody else has them."""

log = structlog.get_logger(__name__)
strays_total = Counter(
    "kafka_mesh_control_fail_back_strays_total",
    "Records that only a cluster had that came back, and that are in their place.",
    ["cluster"],
)


class OpenTransactionError(RuntimeError):
    """The log of the cluster that came back has no end yet."""


@dataclass(frozen=True, slots=True)
class Reconciling:
    """The topics of one fail-back. `here`: the cluster that came back; `there`: the cluster of the clients."""

    here: Brokers
    there: Brokers
    connections: Connections
    clusters: tuple[UpstreamCluster, UpstreamCluster]
    """As `here` and `there`."""
    pace: Pace
    check: Callable[[], None]
    """Raises a refusal when the fail-back is to go on no more."""

    async def planned(
        self, fail_back: fail_backs.FailBack, topic: fail_backs.FailBackTopic
    ) -> fail_backs.FailBackTopic:
        """The topic as it would come back: its way, and the part of its log that may have strays."""
        try:
            after = await self._to_compare(fail_back, topic)
        except OpenTransactionError as error:
            return changed(topic, problem=str(error))
        except NotAllowed as refusal:
            return left(topic, refusal.message)
        after.state = topic.state
        is_more = any(each.end > each.start for each in after.partitions)
        after.way = RECREATE if topic.state == RECREATING or is_more else COPY_ON
        return after

    async def step(self, fail_back: fail_backs.FailBack, topic: fail_backs.FailBackTopic) -> fail_backs.FailBackTopic:
        """The topic after its next step."""
        if topic.state == RECREATING:
            await self._recreate(topic)
            after = changed(topic, state=READY, problem="")
            after.settings.clear()
            return after
        if topic.state == TOPIC_RECONCILING:
            return await self._reconciled(fail_back, topic)
        return await self._to_compare(fail_back, topic)

    async def _to_compare(
        self, fail_back: fail_backs.FailBack, topic: fail_backs.FailBackTopic
    ) -> fail_backs.FailBackTopic:
        ends = await self._ends(fail_back, topic)
        after = changed(topic)
        for each in after.partitions:
            if not each.end:
                each.copied_end = await self._copied_end(topic.clients_topic, each)
        return to_compare(after, ends, self._place(fail_back, topic))

    async def _copied_end(self, topic: str, of: fail_backs.FailBackPartition) -> int:
        """The end of the last records of the copy: the markers of a fail-over come behind it, one for each attempt."""
        start, _ = await self.there.range(topic, of.partition)
        for before in MARKERS:
            first = at = max(start, of.copied_end - before)
            end = -1
            while at < of.copied_end:
                fetched = await self.there.fetch(topic, of.partition, at, FETCH_BYTES, 0, READ_UNCOMMITTED)
                found = list(batches(fetched.records))
                copied = [
                    each.next_offset for each in found if each.base_offset < of.copied_end and not each.is_control
                ]
                end = max([end, *copied])
                if not found:
                    break
                at = found[-1].next_offset
            if end >= 0 or first == start:
                return min(of.copied_end, max(end, first))
        return first

    async def _reconciled(
        self, fail_back: fail_backs.FailBack, topic: fail_backs.FailBackTopic
    ) -> fail_backs.FailBackTopic:
        """The topic when the strays of this comparison are in their place."""
        await self._ends(fail_back, topic)
        if topic.strays_topic not in ("", topic.clients_topic) and not await self.there.partitions(topic.strays_topic):
            new = {topic.strays_topic: (len(topic.partitions), FOR_EVER)}
            await self.connections.create_topics(self.clusters[1], new)
        comparison = Comparison(
            here=self.here,
            there=self.there,
            topic=topic,
            producer=f"{fail_back.name} {fail_back.fail_over_time.ToJsonString()} {topic.topic}",
            failed_over_ms=fail_back.fail_over_time.ToMilliseconds(),
            with_headers=topic.strays_topic != topic.clients_topic,
            pace=self.pace,
            check=self.check,
        )
        await comparison.run()
        after = with_found(topic, {number: (each.strays, each.resent) for number, each in comparison.found.items()})
        strays_total.labels(fail_back.spec.cluster).inc(sum(each.strays for each in comparison.found.values()))
        after.way = RECREATE if topic.way == RECREATE or not _is_prefix(comparison.found) else COPY_ON
        ends = await self._ends(fail_back, topic)
        if any(ends[each.partition].cluster != each.end for each in topic.partitions):
            return to_compare(after, ends, self._place(fail_back, topic))
        if after.way == COPY_ON:
            return closed(after, {})
        own = await self.connections.topic_settings(self.clusters[0], [topic.cluster_topic])
        return closed(after, own[topic.cluster_topic])

    async def _ends(self, fail_back: fail_backs.FailBack, topic: fail_backs.FailBackTopic) -> dict[int, Ends]:
        """The ends of all logs of a topic. NotAllowed: it can't come back."""
        here, there = self.here, self.there
        wanted = [each.partition for each in topic.partitions]
        cluster, clients = await here.partitions(topic.cluster_topic), await there.partitions(topic.clients_topic)
        if cluster not in ([], wanted) or clients != wanted:
            text = (
                f"topic {topic.topic!r} had {len(wanted)} partitions at the fail-over, and has {len(cluster)} on "
                f"{here.name!r} and {len(clients)} on {there.name!r}: reconcile it by hand"
            )
            raise NotAllowed("OTHER_PARTITIONS", f"topics/{topic.topic}", text)
        ends = await here.leader_ends(topic.cluster_topic, cluster)
        stable = await here.stable_ends(topic.cluster_topic, cluster)
        if ends != stable:
            raise OpenTransactionError(
                f"topic {topic.topic!r} on {here.name!r} has an open transaction, or records that replicas lack; the "
                "transaction ends by its time-out, and control looks again"
            )
        committed = await there.stable_ends(topic.clients_topic, clients)
        place = self._place(fail_back, topic)
        numbers = await there.partitions(place)
        if numbers and len(numbers) < len(wanted):
            text = f"topic {place!r} on {there.name!r} has {len(numbers)} partitions, and strays need {len(wanted)}"
            raise NotAllowed("OTHER_PARTITIONS", f"topics/{topic.topic}", text)
        strays = {number: (await there.range(place, number))[1] for number in wanted} if numbers else {}
        return {number: Ends(ends.get(number, 0), committed[number], strays.get(number, 0)) for number in wanted}

    async def _recreate(self, topic: fail_backs.FailBackTopic) -> None:
        here, name = self.here, topic.cluster_topic
        numbers = await here.partitions(name)
        if numbers:
            ends = await here.leader_ends(name, numbers)
            if not any(ends.values()):  # an earlier control has made it again
                return
            await self.connections.delete_topics(self.clusters[0], [name])
        await self._is_gone(name)
        await self.connections.create_topics(self.clusters[0], {name: (len(topic.partitions), dict(topic.settings))})
        log.info("a topic was made again for its fail-back", cluster=here.name, topic=topic.topic)

    async def _is_gone(self, name: str) -> None:
        """Brokers delete a topic some time after they have said so."""
        async with asyncio.timeout(GONE_WITHIN):
            while await self.here.partitions(name):
                await asyncio.sleep(GONE_EVERY)

    def _place(self, fail_back: fail_backs.FailBack, topic: fail_backs.FailBackTopic) -> str:
        """The topic for the strays of a topic. A comparison goes on with the place that it began with."""
        if topic.state == TOPIC_RECONCILING and topic.strays_topic:
            return topic.strays_topic
        if fail_back.spec.strays == APPENDED:
            return topic.clients_topic
        return f"{topic.clients_topic}{STRAYS_SUFFIX}"


def _is_prefix(found: dict[int, Found]) -> bool:
    return all(each.is_prefix for each in found.values())
