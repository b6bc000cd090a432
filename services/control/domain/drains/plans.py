"""The plan of a drain: for each topic of the cluster whether it fits, why not, its size and the time of its copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mesh.record_rules import RecordRule
from mesh.routing import RoutingTable
from mesh.rpc import drains
from services.control.domain.drains.drains import LEFT, MINUTES_OF_A_DAY, MOST_TOPICS, WAITING, move_of
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.topic_moves.moves import Side, TopicMoves, check_sides, source_of
from services.control.domain.topic_moves.users_of_topics import refuse_users
from services.control.domain.topics.topics import SeenTopic

USUAL_BYTES_PER_SECOND = 20_000_000
"""The speed of one copy without a bound, for estimates: what a copy does on one core."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A topic of the cluster to drain, as both clusters describe it."""

    topic: str
    source: Side
    target: Side
    bytes: int | None
    """None: the source does not say it."""


def chosen(spec: drains.DrainSpec, seen: Iterable[SeenTopic], only: Collection[str] | None = None) -> list[SeenTopic]:
    """The topics that a drain is about, by name. `only`: those that an order names; None for all of the pattern."""
    found = sorted(
        (
            each
            for each in seen
            if each.place.cluster == spec.source_cluster
            and fnmatchcase(each.name, spec.topics or "*")
            and (only is None or each.name in only)
        ),
        key=lambda each: each.name,
    )
    if not found:
        about = f"topic that matches {spec.topics!r}" if spec.topics else "topic"
        raise InvalidField("spec.topics", f"rules lead no {about} to {spec.source_cluster!r}")
    if len(found) > MOST_TOPICS:
        text = f"{len(found):,} topics are more than {MOST_TOPICS:,} of one drain; take a part of them by a pattern"
        raise InvalidField("spec.topics", text)
    return found


def planned(
    spec: drains.DrainSpec,
    table: RoutingTable,
    candidates: Iterable[Candidate],
    rules: Collection[RecordRule],
    moves: TopicMoves,
    own_topics: Collection[str],
) -> list[drains.DrainTopic]:
    """The topics of a drain. A topic that does not fit is left, with the reason."""
    planned_ones = []
    for each in candidates:
        topic = drains.DrainTopic(topic=each.topic, state=WAITING, partitions=each.source.partitions)
        if each.bytes is not None:
            topic.bytes, topic.seconds = each.bytes, _seconds(spec, each.bytes)
        topic.problem = "; ".join(_obstacles(spec, table, each, topic, rules, moves, own_topics))
        if topic.problem:
            topic.state = LEFT
        planned_ones.append(topic)
    return planned_ones


def notes_of(spec: drains.DrainSpec, table: RoutingTable, topics: Sequence[drains.DrainTopic]) -> list[str]:
    """Notes about a plan for an operator."""
    notes = []
    source = table.clusters[spec.source_cluster]
    if table.home is not None and table.home.name == source.name:
        notes.append(
            f"{source.name} is the mesh's home: its own topics stay there, and the mesh needs it after the drain"
        )
    unknown = sum(each.state == WAITING and not each.HasField("bytes") for each in topics)
    if unknown:
        notes.append(f"{source.name} does not tell the sizes of {unknown} topics, so the time of their copies is open")
    return notes


def _obstacles(
    spec: drains.DrainSpec,
    table: RoutingTable,
    candidate: Candidate,
    topic: drains.DrainTopic,
    rules: Collection[RecordRule],
    moves: TopicMoves,
    own_topics: Collection[str],
) -> Iterator[str]:
    if candidate.source.place.upstream_topic in own_topics:
        yield "the mesh itself keeps its log or its audit there; it stays with the mesh's home"
        return
    way = candidate.source.place, candidate.target.place
    try:
        source_of(move_of(spec, candidate.topic), table)
        check_sides(candidate.topic, candidate.source, candidate.target)
    except (NotAllowed, InvalidField) as refusal:
        yield refusal.message
    try:
        refuse_users(candidate.topic, way, rules)
    except NotAllowed as refusal:
        yield refusal.message
    for move in moves.open.values():
        if move.spec.topic == candidate.topic:
            yield f"{move.name} moves it already"
    window = _window_seconds(spec)
    if window and topic.HasField("seconds") and topic.seconds > window:
        yield (
            f"it is too large: its copy takes some {topic.seconds:,} s, and the window has {window:,} s; raise the "
            "rate, or move the topic by itself"
        )


def _seconds(spec: drains.DrainSpec, size: int) -> int:
    rate = spec.bytes_per_second // spec.at_once or USUAL_BYTES_PER_SECOND
    return -(-size // rate)


def _window_seconds(spec: drains.DrainSpec) -> int:
    """0: the drain has the whole day."""
    return (spec.window.to_minute - spec.window.from_minute) % MINUTES_OF_A_DAY * 60
