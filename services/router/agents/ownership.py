"""The owners of record rules: routers share the partitions of a work topic as members of a consumer group.

Theory of operation
1. Nothing is ever written to the topic. Its partitions are tokens: the router that is assigned a partition runs the
   rules that hash to that partition. That works without control, and without the routers knowing each other.
2. The group rebalances cooperatively, so rules that keep their router keep running when another router joins or leaves.
   Before a partition is given up, its rules have been stopped (`give_up` returns); a router that is killed loses its
   partitions with its session, after SESSION_TIMEOUT.
3. A router that does not reach the group's coordinator for as long gives its partitions up by itself: the others have
   them by then. That it may be late is the business of the transactions: the next owner fences the one before.
4. librdkafka sends the heartbeats; this thread only polls, and the polls call the callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # as its documentation has it

from mesh.secret_references import resolve_property
from services.router import metrics

PARTITIONS = 16
"""Partitions of the work topic; so many routers can run rules at the same time, at most."""
SESSION_TIMEOUT = 6.0
"""Seconds after which a router that fell silent loses its rules to the others; brokers take no less by default."""
HEARTBEAT_INTERVAL = 1.5
LONGEST_GIVING_UP = 30.0
"""Seconds between two polls after which a router counts as hung; stopping its rules takes a few."""
REQUEST_TIMEOUT = 10.0
POLL = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two memberships of which the first failed."""
MOST_REPLICAS = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """This router's part of the work."""

    owned: frozenset[int] = frozenset()
    partitions: int = PARTITIONS
    mesh_id: str = ""
    """The unique id of the mesh: Kafka's id of the home cluster and the group's name."""


class Ownership:
    """Membership in the group, in a thread of its own: `run` returns after `leave`."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        group: str,
        name: str,
        take: Callable[[Share], None],
        give_up: Callable[[Share], None],
    ) -> None:
        """`take` hears of each larger share; `give_up` of each smaller one, and returns when the rules that are not in
        it have been stopped. Both are called in the thread.
        """
        self._properties = {"bootstrap.servers": bootstrap, **properties}
        self._topic = f"{group}-work"
        self._group = group
        self._name = name
        self._take = take
        self._give_up = give_up
        self._leaving = threading.Event()
        self._share = Share()

    def leave(self) -> None:
        """Ends `run`, which gives everything up in order; from any thread."""
        self._leaving.set()

    def run(self) -> None:
        """One membership after another."""
        pause = FIRST_PAUSE
        while not self._leaving.is_set():
            try:
                self._be_member()
                pause = FIRST_PAUSE
            except Exception as error:  # noqa: BLE001  # whatever it is, gateways are led on, and it is tried again
                reason = _reason(error)
                metrics.record_memberships_ended.inc()
                log.warning(
                    "the router has no share in the record rules; it tries again", reason=reason, next_try_s=pause
                )
                self._lose(self._share.owned)
            self._leaving.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _be_member(self) -> None:
        properties = {name: resolve_property(name, value) for name, value in self._properties.items()}
        cluster_id, partitions = self._ensure_topic(AdminClient({**properties, **_QUIET}))
        self._share = Share(frozenset(), partitions, f"{cluster_id}.{self._group}")
        consumer = Consumer(
            {
                **properties,
                **_QUIET,
                "group.id": self._group,
                "client.id": f"kafka-mesh-{self._name}",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(1000 * SESSION_TIMEOUT),
                "heartbeat.interval.ms": int(1000 * HEARTBEAT_INTERVAL),
                "max.poll.interval.ms": int(1000 * LONGEST_GIVING_UP),
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
            }
        )
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            while not self._leaving.is_set():
                message = consumer.poll(POLL)
                if message is not None and (error := message.error()) is not None:
                    self._heed(error)
        finally:
            consumer.close()  # gives up what is left, through `_revoked`

    def _ensure_topic(self, admin: Any) -> tuple[str, int]:
        """Kafka's id of the cluster, and how many partitions the topic has; it is created where it is absent."""
        found = admin.list_topics(timeout=REQUEST_TIMEOUT)
        known = found.topics.get(self._topic)
        if known is not None and known.partitions:
            return found.cluster_id, len(known.partitions)
        replicas = min(MOST_REPLICAS, len(found.brokers))
        new = NewTopic(self._topic, PARTITIONS, replicas, config={"cleanup.policy": "delete"})
        [future] = admin.create_topics([new], request_timeout=REQUEST_TIMEOUT).values()
        try:
            future.result(REQUEST_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return found.cluster_id, PARTITIONS

    def _assigned(self, consumer: Consumer, gained: list[TopicPartition]) -> None:
        consumer.incremental_assign(gained)
        consumer.pause(gained)  # there is nothing to fetch
        self._share = self._with(self._share.owned | {each.partition for each in gained})
        self._take(self._share)

    def _revoked(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        self._lose(frozenset(each.partition for each in gone))
        consumer.incremental_unassign(gone)

    def _lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        log.warning("the home cluster took this router for gone; its record rules stop", partitions=len(gone))
        self._revoked(consumer, gone)

    def _lose(self, gone: frozenset[int]) -> None:
        self._share = self._with(self._share.owned - gone)
        if gone:
            self._give_up(self._share)

    def _with(self, owned: frozenset[int]) -> Share:
        metrics.record_partitions.set(len(owned))
        return Share(owned, self._share.partitions, self._share.mesh_id)

    def _heed(self, error: KafkaError) -> None:
        """A topic that vanished, or a group that we may not join, needs another membership; all else passes."""
        if error.fatal() or error.code() in _NEEDS_A_NEW_MEMBERSHIP:
            raise KafkaException(error)


_QUIET = {"log_level": 2, "reconnect.backoff.max.ms": 2000}
"""The router logs failures itself; librdkafka would write them to standard error."""
_NEEDS_A_NEW_MEMBERSHIP = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return str(error.args[0].str())
    return str(error) or type(error).__name__
