"""Carries out an order for profiles, topic by topic: reports progress, and cancels at once.

The order writes nothing. So if a driver is started again with the same order, it begins from the start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from mesh.rpc import profiles, replays
from services.pipeline.driver_protocol.orders import Report
from services.pipeline.kafka.positions import Span, StreamError
from services.pipeline.kafka.ranges import Bound, Range
from services.pipeline.spark.cancellation import unless_stopped

END_S = 30.0
"""Seconds for a cancelled task to end."""


class RefusedOrderError(Exception):
    """The order can't be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A topic of the order."""

    topic: str
    """The topic's name for clients."""
    cluster: str
    upstream_topic: str
    ranges: tuple[Range, ...]
    """The ranges, with the topic's name on the cluster."""


class Looking(Protocol):
    """Reads topics and makes profiles."""

    def spans(self, asked: Asked) -> Sequence[Span]:
        """The offsets of the topic's ranges."""

    def profile(self, asked: Asked, spans: Sequence[Span]) -> profiles.TopicProfile:
        """The profile of the records in the spans."""

    def cancel(self) -> None:
        """Cancels the running work; another thread may call it."""


def asked_by(replay: replays.Replay) -> list[Asked]:
    """The topics of an order. RefusedOrderError for a topic without a cluster."""
    places = {each.topic: each for each in replay.places}
    by_topic: dict[str, list[replays.ReplayRange]] = {}
    for each in replay.spec.ranges:
        by_topic.setdefault(each.topic, []).append(each)
    found = []
    for topic, ranges in by_topic.items():
        if topic not in places:
            raise RefusedOrderError(f"topic {topic!r} lives nowhere: no rule leads to a cluster")
        place = places[topic]
        name = place.upstream_topic or topic
        found.append(Asked(topic, place.cluster, name, tuple(_range(name, place.cluster, each) for each in ranges)))
    return found


def _range(topic: str, cluster: str, said: replays.ReplayRange) -> Range:
    partitions = frozenset({said.partition}) if said.HasField("partition") else None
    return Range(topic, _bound(said, "start"), _bound(said, "end"), partitions, cluster)


def _bound(said: replays.ReplayRange, side: Any) -> Bound:
    match said.WhichOneof(side):
        case "start_offset" | "end_offset" as name:
            return int(getattr(said, name))
        case "start_time" | "end_time" as name:
            time: datetime = getattr(said, name).ToDatetime(UTC)
            return time
    return None


def sampled(spans: Iterable[Span], sample: int) -> list[Span]:
    """The last `sample` offsets of each span; all of them for 0."""
    return [
        Span(each.topic, each.partition, max(each.start, each.end - sample) if sample else each.start, each.end)
        for each in spans
    ]


@dataclass(slots=True)
class Profiling:
    """The carrying out of one order."""

    replay: replays.Replay
    looking: Looking
    report: Report
    stopping: threading.Event
    _told: dict[tuple[str, int], replays.ReplayPartition] = field(default_factory=dict)

    def run(self) -> replays.ReplayState.ValueType:
        """Returns the final state, which was also reported."""
        try:
            return self._run()
        except (RefusedOrderError, StreamError) as error:
            return self._end(replays.REPLAY_STATE_FAILED, str(error))

    def _run(self) -> replays.ReplayState.ValueType:
        sample = self.replay.spec.profile.sample
        plan = {each.topic: (each, self.looking.spans(each)) for each in asked_by(self.replay)}
        chosen = {topic: sampled(spans, sample) for topic, (_, spans) in plan.items()}
        self._told = {(each.topic, each.partition): _partition(each) for spans in chosen.values() for each in spans}
        offsets = sum(each.end_offset - each.start_offset for each in self._told.values())
        self._tell(replays.REPLAY_STATE_RUNNING, f"{offsets} offsets are looked at", self._told.values())
        if self.replay.spec.dry_run:
            return self._end(replays.REPLAY_STATE_DONE, f"{offsets} offsets would be looked at")
        found: list[profiles.TopicProfile] = []
        for topic, (asked, spans) in plan.items():
            profile = None if self._is_to_end() else self._profiled(asked, chosen[topic])
            if profile is None:
                return self._end(replays.REPLAY_STATE_CANCELLED, "stopped; nothing was found yet", found)
            profile.topic, profile.cluster = topic, asked.cluster
            profile.is_sample = chosen[topic] != list(spans)
            found.append(profile)
            self._tell(replays.REPLAY_STATE_RUNNING, "", self._done(topic, profile))
        records = sum(each.records for each in found)
        return self._end(replays.REPLAY_STATE_DONE, f"{records} records looked at", found)

    def _is_to_end(self) -> bool:
        return self.replay.cancelling or self.stopping.is_set()

    def _profiled(self, asked: Asked, spans: Sequence[Span]) -> profiles.TopicProfile | None:
        """None after a stop."""
        return unless_stopped(
            self.stopping, lambda: self.looking.profile(asked, spans), self.looking.cancel, end_s=END_S
        )

    def _done(self, topic: str, profile: profiles.TopicProfile) -> list[replays.ReplayPartition]:
        done = [each for (name, _), each in self._told.items() if name == topic]
        for each in done:
            each.position = each.end_offset
            each.records = profile.partition_records.get(each.partition, 0)
        return done

    def _end(
        self, state: replays.ReplayState.ValueType, text: str, found: Iterable[profiles.TopicProfile] = ()
    ) -> replays.ReplayState.ValueType:
        self._tell(state, text, found=found)
        return state

    def _tell(
        self,
        state: replays.ReplayState.ValueType,
        text: str,
        partitions: Iterable[replays.ReplayPartition] = (),
        found: Iterable[profiles.TopicProfile] = (),
    ) -> None:
        self.report(
            replays.ReportReplayRequest(
                name=self.replay.name,
                member=self.replay.member,
                partitions=partitions,
                state=state,
                description=text,
                profiles=found,
            )
        )


def _partition(span: Span) -> replays.ReplayPartition:
    return replays.ReplayPartition(
        topic=span.topic,
        partition=span.partition,
        start_offset=span.start,
        end_offset=span.end,
        position=span.start,
    )


def read_of(spans: Iterable[Span], asked: Asked) -> list[Range]:
    """The ranges of these offsets."""
    return [
        Range(asked.upstream_topic, each.start, each.end, frozenset({each.partition}), asked.cluster)
        for each in spans
        if each.start < each.end
    ]
