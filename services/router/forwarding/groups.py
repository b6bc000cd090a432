"""Groups follow the records: offsets that they have committed on a mirror's source are committed, translated, on its
target.

Theory of operation
1. Only groups without members on the target get offsets there: the cluster refuses others, and a member would commit
   its own the next moment.
2. Offsets on the target are never moved back, but for groups that an operator names in an order: they may have been
   used there.
3. An order is carried out when no group is ahead of the mirror any more, or after ORDER_SECONDS. Until then, some
   groups would read records again on the target.
4. An offset that was translated is not translated again while the group does not commit.
5. A mirror may begin in the middle of a log. A group with unread records from before that place would skip these on the
   target. So the group gets no offset, and is named as a problem of the rule, unless an order names the group.
6. It has a thread and a consumer of its own: a search takes milliseconds, for which records do not wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import re2
import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name

from mesh import durations
from mesh.group_offsets import committed_offsets
from mesh.rpc import record_rules
from services.router.forwarding.connections import REQUEST_TIMEOUT, Cluster, Setback, answers, setback
from services.router.forwarding.memory import SourcePartition
from services.router.forwarding.orders import GroupSync
from services.router.forwarding.points import Points
from services.router.forwarding.provenance import origin_of
from services.router.forwarding.translation import Log, Sighting, translated

USUAL_INTERVAL = 10.0
"""Seconds between two translations of all groups, if the rule sets none."""
ORDER_SECONDS = 60.0
"""How long an order waits for the mirror to come up to all groups."""
ORDER_PAUSE = 0.5
"""Seconds between two attempts to carry out an order."""
SEARCH_TIMEOUT = 30.0
"""Seconds that reading the target for one translation may take."""
AT_ONCE = 100
"""Groups asked at the same time; and records read at a time."""
OWN = ("mesh.", "__")
"""Beginnings of groups that stay where they are."""
IN_USE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.GROUP_SUBSCRIBED_TO_TOPIC,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""The target's errors for a group with members there."""
SEARCHING = {
    "auto.offset.reset": "earliest",  # what lies before the log's beginning is gone for every reader
    "fetch.message.max.bytes": 128 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 10,
}

SPECS: Any = OffsetSpec  # its methods have no types
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """The state of a mirrored partition at the moment, for the translation of its offsets."""

    target_topic: str
    copied: int
    """Source offset up to which all is on the target."""
    points: Points

    @property
    def shown(self) -> int:
        """A target offset that readers see when they see all that was copied: a cluster says that a transaction is
        committed a moment before it shows it.
        """
        return self.points.latest


Ways = Callable[[], Mapping[SourcePartition, Way]]


class GroupFollower:
    """Translates for one mirror, from `start` to `stop`."""

    def __init__(
        self,
        rule_id: str,
        source: Cluster,
        source_id: str,
        target: Cluster,
        ways: Ways,
        wanted: record_rules.GroupOffsets | None,
        orders: Sequence[GroupSync],
    ) -> None:
        """`orders`: those not carried out yet, oldest first; `source_id`: Kafka's own id of the cluster."""
        self.carried_out = 0
        """Event of the last order that was carried out."""
        self.synced_at: float | None = None
        """When offsets were last translated, in seconds since 1970."""
        self.problem = ""
        self.in_use = 0
        """Groups that had members on the target at the last translation."""
        self._rule_id = rule_id
        self._source = source
        self._source_id = source_id
        self._target = target
        self._ways = ways
        self._orders = list(orders)
        self._continuous = wanted is not None and wanted.continuous
        self._pattern = re2.compile(wanted.group_regex) if wanted is not None and wanted.group_regex else None
        self._interval = (durations.whole_ms(wanted.sync_interval) / 1000 if wanted else 0) or USUAL_INTERVAL
        self._done: dict[tuple[str, SourcePartition], int] = {}
        self._behind: dict[tuple[str, SourcePartition], int] = {}
        """Unread offsets from before the mirror's beginning, as of the last translation."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"groups-{rule_id}", daemon=True)
        self._reader: Any = None

    def start(self) -> None:
        """Begins, if there is anything to do."""
        if self._orders or self._continuous:
            self._thread.start()

    def stop(self) -> None:
        """Ends it; a search that runs ends by its own bound."""
        self._stopping.set()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._stopping.is_set() and (self._orders or self._continuous):
                pause = self._interval
                try:
                    if self._orders:
                        late = time.monotonic() - began > ORDER_SECONDS
                        pause = self._carry_out(self._orders[0], late=late)
                    else:
                        self._sync(self._all_groups(), backwards=False)
                except Setback as error:
                    self.problem = f"offsets of groups: {error}"
                    log.warning(
                        "offsets of groups do not follow their mirror", rule=self._rule_id, problem=self.problem
                    )
                except Exception as error:  # a fault of ours ends neither this nor the records' way
                    self.problem = f"offsets of groups: a fault of the worker: {error!r}"
                    log.exception("offsets of groups do not follow their mirror", rule=self._rule_id)
                self._stopping.wait(pause)
        finally:
            if self._reader is not None:
                self._reader.close()

    def _carry_out(self, order: GroupSync, *, late: bool) -> float:
        """Seconds until there is more to do."""
        self._done.clear()
        ahead = self._sync(order.groups or self._all_groups(), backwards=bool(order.groups))
        if ahead and not late:
            return ORDER_PAUSE
        self._orders.pop(0)
        self.carried_out = order.revision
        return 0.0

    def _sync(self, groups: Collection[str], *, backwards: bool) -> bool:
        """Translates for these groups; whether one of them is ahead of the mirror."""
        ways, ahead, in_use = self._ways(), False, 0
        self._behind.clear()
        wanted = sorted(groups)
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            there = self._committed(self._source, some)
            for group in some:
                if self._stopping.is_set():
                    return True
                offsets = {each: offset for each, offset in there[group].items() if each in ways}
                if self._follow(group, offsets, ways, backwards=backwards):
                    ahead = ahead or any(
                        self._done.get((group, each)) != offset and (group, each) not in self._behind
                        for each, offset in offsets.items()
                    )
                else:
                    in_use += 1
        self.in_use = in_use
        self.problem = self._problem_of_behind()
        self.synced_at = time.time()
        return ahead

    def _follow(
        self,
        group: str,
        offsets: Mapping[SourcePartition, int],
        ways: Mapping[SourcePartition, Way],
        *,
        backwards: bool,
    ) -> bool:
        """Gives one group its offsets on the target. False: it is in use there."""
        moved = {each: offset for each, offset in offsets.items() if self._done.get((group, each)) != offset}
        if not moved:
            return True
        known = self._committed(self._target, [group])[group]
        if not backwards:
            new = {each: offset for each, offset in moved.items() if _place(each, ways[each]) not in known}
            behind = self._unread_before(new, ways)
            self._behind.update({(group, each): count for each, count in behind.items()})
            moved = {each: offset for each, offset in moved.items() if each not in behind}
            if not moved:
                return True
        ends = self._offsets(self._target, [_place(each, ways[each]) for each in moved], SPECS.latest())
        places = {
            _place(each, ways[each]): self._translated(each, offset, ways[each], ends) for each, offset in moved.items()
        }
        wanted = [
            TopicPartition(place.topic, place.number, offset)
            for place, offset in places.items()
            if offset != known.get(place) and (backwards or offset > known.get(place, -1))
        ]
        if wanted and not self._commit(group, wanted):
            return False
        for each, offset in moved.items():
            way = ways[each]
            if offset <= way.copied and way.shown < ends[_place(each, way)]:
                self._done[group, each] = offset
        return True

    def _unread_before(
        self, offsets: Mapping[SourcePartition, int], ways: Mapping[SourcePartition, Way]
    ) -> dict[SourcePartition, int]:
        """The number of offsets, by partition, that lie between a group and the mirror's beginning."""
        early = [each for each, offset in offsets.items() if offset < ways[each].points.begins]
        if not early:
            return {}
        firsts = self._offsets(self._source, early, SPECS.earliest())
        unread = {each: ways[each].points.begins - max(offsets[each], firsts[each]) for each in early}
        return {each: count for each, count in unread.items() if count > 0}

    def _problem_of_behind(self) -> str:
        """The groups that can't follow, in a sentence."""
        if not self._behind:
            return ""
        (group, place), count = next(iter(self._behind.items()))
        more = len({name for name, _ in self._behind}) - 1
        others = f", and {more} more groups" if more else ""
        return (
            f"group {group!r} has {count} unread offsets of {place.topic}-{place.number} from before the mirror's "
            f"beginning{others}: it would skip them on the target, so it gets no offset there. Let it read on, or name "
            "it in an order to sync groups"
        )

    def _offsets(self, cluster: Cluster, places: Collection[SourcePartition], spec: Any) -> dict[SourcePartition, int]:
        """Offsets of partitions, as consumers see them that read committed records only."""
        wanted = {TopicPartition(*place): spec for place in places}
        futures = cluster.ask(
            lambda admin: admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_TIMEOUT
            )
        )
        found = answers(futures, f"offsets on cluster {cluster.name!r}")
        return {SourcePartition(each.topic, each.partition): answer.offset for each, answer in found.items()}

    def _translated(self, source: SourcePartition, offset: int, way: Way, ends: Mapping[SourcePartition, int]) -> int:
        place = _place(source, way)
        log = Log(ends[place], partial(self._read, TopicPartition(*place)))
        return translated(offset, way.points.stretch(offset), log)

    def _read(self, place: TopicPartition, first: int) -> Iterator[Sighting]:
        """The records of a target partition from here to its end."""
        if self._reader is None:
            self._reader = self._target.consumer(**SEARCHING)
        self._reader.assign([TopicPartition(place.topic, place.partition, first)])
        deadline = time.monotonic() + SEARCH_TIMEOUT
        at_once = 1
        while True:
            for message in self._reader.consume(at_once, 1.0 if at_once == 1 else 0.01):
                error = message.error()
                if error is None:
                    yield Sighting(message.offset(), self._source_offset(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif not error.retriable():
                    raise setback(f"{place.topic}-{place.partition} on {self._target.name!r}", KafkaException(error))
                at_once = AT_ONCE
            if time.monotonic() > deadline or self._stopping.is_set():
                raise Setback(f"{place.topic}-{place.partition} on {self._target.name!r} could not be read in time")

    def _source_offset(self, message: Any) -> int | None:
        origin = origin_of(message.headers())
        ours = origin is not None and origin.rule_id == self._rule_id and origin.clusters[-1] == self._source_id
        return origin.offset if origin is not None and ours else None

    def _all_groups(self) -> list[str]:
        listed = self._source.ask(
            lambda admin: admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT).result(REQUEST_TIMEOUT)
        )
        names = [each.group_id for each in listed.valid]
        pattern = self._pattern
        return [name for name in names if not name.startswith(OWN) and (pattern is None or pattern.fullmatch(name))]

    def _committed(self, cluster: Cluster, groups: Collection[str]) -> dict[str, dict[SourcePartition, int]]:
        """The offsets that these groups have committed on a cluster."""
        wanted = [*map(ConsumerGroupTopicPartitions, groups)]
        futures = cluster.ask(lambda admin: committed_offsets(admin, wanted, REQUEST_TIMEOUT))
        found = answers(futures, f"groups of cluster {cluster.name!r}", accepted=[KafkaError.GROUP_ID_NOT_FOUND])
        return {
            group: {
                SourcePartition(each.topic, each.partition): each.offset
                for each in (found[group].topic_partitions if group in found else ())
                if each.error is None and each.offset >= 0
            }
            for group in groups
        }

    def _commit(self, group: str, offsets: list[TopicPartition]) -> bool:
        """Commits for a group on the target. False: it has members there."""
        futures = self._target.ask(
            lambda admin: admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, offsets)], request_timeout=REQUEST_TIMEOUT
            )
        )
        done = answers(futures, f"groups of cluster {self._target.name!r}", accepted=list(IN_USE))
        if group not in done:
            return False
        errors = [each.error for each in done[group].topic_partitions if each.error is not None]
        if any(error.code() in IN_USE for error in errors):
            return False
        if errors:
            raise setback(f"group {group!r} on cluster {self._target.name!r}", KafkaException(errors[0]))
        log.info("group follows", rule=self._rule_id, group=group, partitions=len(offsets))
        return True


def _place(source: SourcePartition, way: Way) -> SourcePartition:
    """The partition of the target."""
    return SourcePartition(way.target_topic, source.number)
