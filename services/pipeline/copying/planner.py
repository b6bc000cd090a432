"""Draws up the plan of a replay: asks the clusters and the archive, checks the targets, stores the plan.

The plan is stored in the notes of the replay's groups, in one transaction with a transactional id of its own (`.plan`).
This id fences any other driver that stores the plan. So the later of two drivers finds the earlier plan, or is the only
one to store a plan. A driver that finds notes follows them: the end offsets and the lanes stay as they were when the
replay began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer, TopicPartition
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from services.pipeline.copying import checks, offsets
from services.pipeline.copying.admin import AskedCluster, Topic
from services.pipeline.copying.checks import Ages, Limits, TargetTopic
from services.pipeline.copying.errors import (
    RefusedError,
    SetbackError,
    archive_of_another,
    forgotten,
    of_another_copy,
    replaced,
)
from services.pipeline.copying.notes import Note, nobody_of
from services.pipeline.copying.offsets import NOWHERE, Held, Stretch, Times
from services.pipeline.copying.origins import Archive
from services.pipeline.copying.routes import SLOTS, Route, group_of, mark_of, routes_of
from services.pipeline.copying.sampling import mean_size
from services.pipeline.copying.tasks import Part
from services.pipeline.copying.transforms import Shape
from services.pipeline.kafka.admin import CLIENT_ID
from services.pipeline.kafka.positions import PartitionLog, Place

PLAN_TIMEOUT_S = 50.0
NOTES_AT_ONCE = 1_000
"""Notes of one request."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The partitions of a copy and their progress."""

    parts: Mapping[Place, Part]

    @property
    def lost(self) -> int:
        return sum(part.note.lost for part in self.parts.values())


class Drawing:
    """Draws the plan of one replay, for one attempt."""

    def __init__(
        self,
        replay: replays.Replay,
        clusters: Mapping[str, Mapping[str, str]],
        archive: Archive | None,
        slots: Callable[[], int],
        timeout_s: float,
    ) -> None:
        """`slots`: the number of tasks that run at once.

        RefusedError for a copy that is impossible regardless of the clusters' content.
        """
        self._replay, self._copy = replay, replay.spec.topic
        self._clusters, self._timeout_s, self._slots = clusters, timeout_s, slots
        self.routes = routes_of(replay)
        self._archive_only = self._copy.archive == replays.REPLAY_ARCHIVE_ONLY
        if self._archive_only and archive is None:
            raise RefusedError("only the archive is to be read, and this pipeline has none: set the archive's folder")
        self._archive = None if self._copy.archive == replays.REPLAY_ARCHIVE_NEVER else archive
        for route in self.routes.values():
            for name in (route.source_cluster, route.target_cluster):
                if name not in clusters:
                    known = ", ".join(clusters) or "none"
                    raise RefusedError(f"cluster {name!r} is not registered (known: {known})")
            try:
                Shape(route, self._copy, 1)
            except ValueError as error:
                raise RefusedError(str(error)) from None
        names = {name for each in self.routes.values() for name in (each.source_cluster, each.target_cluster)}
        self._asked = {name: AskedCluster(name, clusters[name], timeout_s) for name in names}
        self._marks: dict[str, str] = {}
        """The mark of each requested copy, by topic."""

    def draw(self) -> Plan:
        """The stored plan; a new plan is stored first. CopyError, SetbackError."""
        topics, targets = self._topics(), self._targets()
        self._marks = {
            topic: mark_of(route, self._replay, targets[topic].topic_id) for topic, route in self.routes.items()
        }
        notes: dict[Place, Note] = {}
        for cluster, routes in _by(self.routes.values(), lambda each: each.target_cluster).items():
            names = {each.topic for each in routes}
            mine = {topic: each for topic, each in topics.items() if topic in names}
            written = {} if self._replay.spec.dry_run else self._written(cluster, mine)
            if not written:
                drawn = self._drawn(mine, targets, beside=len(notes))
                written = drawn if self._replay.spec.dry_run else self._write_down(cluster, drawn, mine)
            notes |= written
        self._check_same(notes, topics)
        held = self._held(notes)
        return Plan({place: self._part(place, note, held[place], targets) for place, note in notes.items()})

    def notes(self, places: Iterable[Place] | None = None, *, stable: bool = False) -> dict[Place, Note]:
        """The current progress of these partitions, or of all planned partitions. Writes nothing."""
        found: dict[Place, Note] = {}
        wanted = self._partitions() if places is None else _by_topic(places)
        for topic, partitions in wanted.items():
            route = self.routes[topic]
            notes = self._asked[route.target_cluster].notes(route.group, partitions, stable=stable)
            found |= {(topic, partition): note for partition, note in notes.items()}
        return found

    def _partitions(self) -> dict[str, list[int]]:
        return {topic: list(range(each.partitions)) for topic, each in self._topics().items()}

    # State of the clusters and the archive

    def _topics(self) -> dict[str, Topic]:
        """The source topics, by the names that clients use."""
        if self._archive_only:
            return self._archived_topics()
        found: dict[str, Topic] = {}
        for cluster, routes in _by(self.routes.values(), lambda each: each.source_cluster).items():
            there = self._asked[cluster].topics({each.source_topic for each in routes})
            found |= {each.topic: there[each.source_topic] for each in routes}
        if self._archive is not None:
            for topic, topic_id in self._archive.topic_ids(self.routes).items():
                if topic_id and found[topic].topic_id and topic_id != found[topic].topic_id:
                    raise archive_of_another(topic)
            self._check_archived(found)
        return found

    def _check_archived(self, topics: Mapping[str, Topic]) -> None:
        """RefusedError if a record before the latest archived record of its partition has a later time."""
        assert self._archive is not None
        last = {
            place: stamp
            for place, stamp in self._archive.last(self.routes).items()
            if place[1] < topics[place[0]].partitions
        }
        for cluster, mine in self._by_source(last).items():
            found = self._asked[cluster].since(
                {there: last[place].time_ms + 1 for place, there in mine.items()}, committed=False
            )
            for place, there in mine.items():
                if 0 <= found[there] <= last[place].offset:
                    raise archive_of_another(place[0])

    def _archived_topics(self) -> dict[str, Topic]:
        assert self._archive is not None
        extents = self._archive.extents(self.routes)
        found = {}
        for topic in self.routes:
            partitions = [partition for name, partition in extents if name == topic]
            if not partitions:
                raise RefusedError(f"the archive has nothing of topic {topic}")
            found[topic] = Topic("", max(partitions) + 1)
        return found

    def _targets(self) -> dict[str, TargetTopic]:
        """The target topics, by the names of the topics that are copied to them."""
        found = {}
        for topic, route in self.routes.items():
            asked = self._asked[route.target_cluster]
            there = asked.topics([route.target_topic])[route.target_topic]
            found[topic] = TargetTopic(there.partitions, asked.settings(route.target_topic), there.topic_id)
        return found

    def _held(self, places: Mapping[Place, Any]) -> dict[Place, Held]:
        archived = self._archive.extents(self.routes) if self._archive is not None else {}
        if self._archive_only:
            return {place: Held(PartitionLog(0, 0), archived.get(place, PartitionLog(0, 0))) for place in places}
        found: dict[Place, Held] = {}
        for cluster, mine in self._by_source(places).items():
            asked = self._asked[cluster]
            starts, ends = asked.starts(mine.values()), asked.ends(mine.values())
            highs = asked.ends(mine.values(), committed=False)
            for place, there in mine.items():
                log = PartitionLog(starts[there], ends[there])
                found[place] = Held(log, archived.get(place), highs[there])
        return found

    def _by_source(self, places: Mapping[Place, Any]) -> dict[str, dict[Place, Place]]:
        """By cluster: partition as clients name it -> partition on the cluster."""
        found: dict[str, dict[Place, Place]] = {}
        for topic, partition in places:
            route = self.routes[topic]
            found.setdefault(route.source_cluster, {})[topic, partition] = route.source_topic, partition
        return found

    def _stretches(
        self, ranges: Mapping[Place, replays.ReplayRange], held: Mapping[Place, Held]
    ) -> dict[Place, Stretch]:
        times = Times(
            self._since(
                {place: _ms(each.start_time) for place, each in ranges.items() if each.HasField("start_time")}, held
            ),
            self._since(
                {place: _ms(each.end_time) for place, each in ranges.items() if each.HasField("end_time")}, held
            ),
        )
        return {
            place: offsets.stretch(place, each, held[place], times, archive_only=self._archive_only)
            for place, each in ranges.items()
        }

    def _since(self, times: Mapping[Place, int], held: Mapping[Place, Held]) -> dict[Place, int]:
        """Offsets of the first records that are not older; the archive counts for records before the log's start."""
        found: dict[Place, int] = {}
        if not self._archive_only:
            for cluster, mine in self._by_source(times).items():
                there = self._asked[cluster].since({mine[place]: times[place] for place in mine})
                found |= {place: there[mine[place]] for place in mine}
        old = {place: at for place, at in times.items() if self._reaches_back(held[place])}
        if self._archive is not None and old:
            for place, offset in self._archive.offsets_for_times(old).items():
                if offset != NOWHERE and (self._archive_only or offset < held[place].log.start):
                    found[place] = offset
        return {place: found.get(place, NOWHERE) for place in times}

    def _reaches_back(self, held: Held) -> bool:
        return held.archived is not None and (self._archive_only or held.archived.start < held.log.start)

    def _drawn(
        self, topics: Mapping[str, Topic], targets: Mapping[str, TargetTopic], *, beside: int
    ) -> dict[Place, Note]:
        """A new, checked plan; `beside`: the number of the replay's partitions that are already planned."""
        mine = [each for each in self._replay.spec.ranges if each.topic in topics]
        ranges = offsets.asked(mine, {topic: each.partitions for topic, each in topics.items()})
        offsets.check_number(beside + len(ranges))
        held = self._held(ranges)
        stretches = self._stretches(ranges, held)
        for topic in topics:
            self._check(topic, {place: each for place, each in stretches.items() if place[0] == topic}, held, targets)
        return self._noted(stretches, topics)

    # Checks of the targets

    def _check(
        self,
        topic: str,
        stretches: Mapping[Place, Stretch],
        held: Mapping[Place, Held],
        targets: Mapping[str, TargetTopic],
    ) -> None:
        route, target, force = self.routes[topic], targets[topic], self._copy.force
        checks.check_partitions(route, target, self._copy, 1 + max(partition for _, partition in stretches))
        if self._copy.timestamps != replays.REPLAY_TIMESTAMPS_NOW:
            checks.check_times_kept(route, target)
            limits = Limits.of(target, int(time.time() * 1000))
            checks.check_ages(route, stretches, self._ages(stretches, held, limits), target, force)
        if force or self._archive_only:
            return
        checks.check_compaction(route, target, self._asked[route.source_cluster].settings(route.source_topic))
        if target.retention_bytes >= 0:
            mean = mean_size(
                route, stretches, held, self._clusters[route.source_cluster], self._archive, self._timeout_s
            )
            checks.check_sizes(route, stretches, target, mean)

    def _ages(self, stretches: Mapping[Place, Stretch], held: Mapping[Place, Held], limits: Limits) -> Ages:
        def at(limit: int | None) -> dict[Place, int]:
            return {} if limit is None else self._since(dict.fromkeys(stretches, limit), held)

        return Ages(at(limits.kept_from), at(limits.taken_from), at(limits.taken_until))

    # Storing the plan

    def _noted(self, stretches: Mapping[Place, Stretch], topics: Mapping[str, Topic]) -> dict[Place, Note]:
        """The notes of a new plan. Lanes are numbered across all source clusters: each lane reads from one cluster."""
        notes: dict[Place, Note] = {}
        first = 0
        for mine in self._by_source(stretches).values():
            count = offsets.lane_count(len(mine), self._slots(), limited=self._replay.spec.rate > 0)
            chosen = offsets.lanes({place: stretches[place].end - stretches[place].start for place in mine}, count)
            for place, lane in chosen.items():
                each, topic_id = stretches[place], topics[place[0]].topic_id
                notes[place] = Note(
                    topic_id,
                    each.start,
                    each.end,
                    each.lost,
                    first + lane,
                    each.start,
                    lost_until=each.lost_until,
                    copy=self._marks[place[0]],
                )
            first += count
        return notes

    def _written(self, cluster: str, topics: Mapping[str, Topic]) -> dict[Place, Note]:
        """The notes that are already stored. CopyError if stored notes have disappeared."""
        asked, found = self._asked[cluster], dict[Place, Note]()
        for topic, each in topics.items():
            notes = asked.notes(self.routes[topic].group, range(each.partitions))
            found |= {(topic, partition): note for partition, note in notes.items()}
        for known in self._replay.partitions:
            place = known.topic, known.partition
            if known.topic in topics and place not in found:
                if known.position < known.end_offset:
                    raise forgotten(self.routes[known.topic].group, cluster, place)
                found[place] = _done(known, topics[known.topic].topic_id, self._marks[known.topic])
        return found

    def _check_same(self, notes: Mapping[Place, Note], topics: Mapping[str, Topic]) -> None:
        """CopyError if a source topic was created again, or if the notes belong to another copy."""
        for (topic, _), note in notes.items():
            route = self.routes[topic]
            if note.copy != self._marks[topic]:
                raise of_another_copy(route.group, route.target_cluster, topic)
            if note.topic_id and topics[topic].topic_id and note.topic_id != topics[topic].topic_id:
                raise replaced(route.source_topic, route.source_cluster)

    def _write_down(self, cluster: str, notes: Mapping[Place, Note], topics: Mapping[str, Topic]) -> dict[Place, Note]:
        """Stores the plan, unless a plan is already stored, and returns the stored plan."""
        with_id = {"transactional.id": f"{group_of(self._replay)}.plan", "client.id": CLIENT_ID}
        producer: Any = Producer({**self._clusters[cluster], **with_id})
        try:
            producer.init_transactions(PLAN_TIMEOUT_S)
            if written := self._written(cluster, topics):
                return written
            self._asked[cluster].ensure_slots(max(each.partitions for each in topics.values()))
            producer.begin_transaction()
            for topic in topics:
                self._send(
                    producer, self.routes[topic], {place: each for place, each in notes.items() if place[0] == topic}
                )
            producer.commit_transaction(PLAN_TIMEOUT_S)
        except KafkaException as failure:
            raise SetbackError(f"the plan can't be kept on cluster {cluster!r}: {failure.args[0].str()}") from failure
        return dict(notes)

    def _send(self, producer: Any, route: Route, notes: Mapping[Place, Note]) -> None:
        metadata = nobody_of(route.group)
        noted = [
            TopicPartition(SLOTS, partition, note.position, metadata=note.metadata)
            for (_, partition), note in notes.items()
        ]
        for first in range(0, len(noted), NOTES_AT_ONCE):
            producer.send_offsets_to_transaction(noted[first : first + NOTES_AT_ONCE], metadata, PLAN_TIMEOUT_S)

    def _part(self, place: Place, note: Note, held: Held, targets: Mapping[str, TargetTopic]) -> Part:
        target = targets[place[0]]
        return Part(place, self.routes[place[0]], note, held, target.partitions, target.batch_bytes)


T = TypeVar("T")


def _by(routes: Iterable[Route], key: Callable[[Route], T]) -> dict[T, list[Route]]:
    found: dict[T, list[Route]] = {}
    for each in routes:
        found.setdefault(key(each), []).append(each)
    return found


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def _ms(time_: Timestamp) -> int:
    return -(-time_.ToNanoseconds() // 1_000_000)  # rounded up: a search finds the first record that is not older


def _done(known: replays.ReplayPartition, topic_id: str, copy: str) -> Note:
    """The note of a partition that was reported as done; its stored note may have expired."""
    return Note(topic_id, known.start_offset, known.end_offset, 0, 0, known.end_offset, known.records, copy=copy)
