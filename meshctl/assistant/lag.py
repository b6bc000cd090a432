"""Why a group is behind: what control knows, as sentences, each from one fact of an answer. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mesh.lag_wording import behind as behind_text
from mesh.lag_wording import outlook
from mesh.rpc import instances, topic_moves, topics
from mesh.wording import short
from meshctl.output import count

MOST_NAMED = 5
"""Partitions that a sentence names."""
MOST_COURSES = 3
"""Partitions whose rates are shown."""
_IDLE_STATES = {
    instances.INSTANCE_STATE_PAUSED: "is paused, and reads nothing until somebody resumes it",
    instances.INSTANCE_STATE_DRAINING: "is draining: it takes no new records",
    instances.INSTANCE_STATE_DRAINED: "is drained, and reads nothing until somebody resumes it",
    instances.INSTANCE_STATE_UNREACHABLE: "does not reach Kafka",
    instances.INSTANCE_STATE_IDLE: "is idle: its backend does not ask for records",
}
_REBALANCES = (
    topics.CONSUMER_GROUP_STATE_PREPARING_REBALANCE,
    topics.CONSUMER_GROUP_STATE_COMPLETING_REBALANCE,
)
MOVING = {
    topic_moves.TOPIC_MOVE_STATE_COPYING: "a router copies it, and readers notice nothing",
    topic_moves.TOPIC_MOVE_STATE_WAITING: "it waits for its cut, and readers notice nothing",
    topic_moves.TOPIC_MOVE_STATE_CUTTING: "gateways hold it for a moment",
}
NOTHING_KNOWN = (
    "Control knows no fact that explains the lag. The members have their partitions, so compare how fast producers "
    "write with how fast the group reads (top_traffic), or ask the people who run the group."
)


@dataclass(slots=True)
class Known:
    """The answers of control about one group."""

    group: topics.GetGroupResponse
    statuses: Sequence[instances.InstanceStatus] = ()
    moves: Sequence[topic_moves.MoveWithRecords] = ()
    away: Sequence[str] = ()
    over_time: Sequence[topics.PartitionLag] = ()


def behind(of: topics.GroupPosition) -> int:
    """Records between the group and the end of a partition; -1 where the end is not known."""
    return max(0, of.end - max(of.committed, of.start)) if of.end >= 0 else -1


def reasons(known: Known) -> list[str]:
    """Sentences: how far the group is behind, the facts that explain it, and what else goes on."""
    positions = known.group.positions
    explaining = [*_group(known.group), *_instances(known.statuses), *_losses(positions), *known.group.problems]
    if not explaining and any(behind(each) > 0 for each in positions):
        explaining.append(NOTHING_KNOWN)
    return [*_measured(positions), *_over_time(known.over_time), *explaining, *_moving(known), *known.away]


def _group(of: topics.GetGroupResponse) -> Iterator[str]:
    name, group = short(of.group.name), of.group
    if group.state == topics.CONSUMER_GROUP_STATE_EMPTY or (group.HasField("members") and not group.members):
        yield f"Group {name} has no member: nobody reads, so its lag grows with each record that is written."
    elif group.state == topics.CONSUMER_GROUP_STATE_DEAD:
        yield f"The coordinator is about to forget group {name}."
    elif group.state in _REBALANCES:
        yield f"Group {name} rebalances now: its members read nothing until each has its partitions."
    without = [each for each in of.members if not each.partitions]
    if without and len(without) == len(of.members):
        yield f"No member of group {name} has a partition."
    if not of.group.home:
        yield f"No cluster coordinates group {name}: clusters only keep its offsets."


def _instances(statuses: Iterable[instances.InstanceStatus]) -> Iterator[str]:
    for each in statuses:
        if each.state in _IDLE_STATES:
            yield f"Instance {short(each.name)} of a sidecar {_IDLE_STATES[each.state]}."
        if each.problem:
            yield f"Instance {short(each.name)} of a sidecar has a problem: {each.problem}"


def _measured(found: Sequence[topics.GroupPosition]) -> Iterator[str]:
    late = sorted((each for each in found if behind(each) > 0), key=behind, reverse=True)
    if not found:
        yield "The group has committed no offset, so it has no lag that can be counted."
    elif not late:
        yield "The group is not behind in any partition whose end is known."
    else:
        total = sum(map(behind, late))
        named = ", ".join(f"{_place(each)} {behind(each):,}" for each in late[:MOST_NAMED])
        yield (
            f"The group is {count(total, 'record')} behind in {len(late):,} of {count(len(found), 'partition')}; "
            f"the most in {named}."
        )


def _over_time(found: Iterable[topics.PartitionLag]) -> Iterator[str]:
    late = sorted((each for each in found if each.last.records), key=lambda each: -each.last.records)
    for each in late[:MOST_COURSES]:
        since = f" since {each.growing_since.ToJsonString()}" if each.HasField("growing_since") else ""
        yield (
            f"In the last five minutes {each.written_per_second:,.3g} records a second were written to "
            f"{each.topic}/{each.partition}, and the group read {each.passed_per_second:,.3g}: {outlook(each)}{since}. "
            f"Its next record was written {behind_text(each.last)} ago."
        )


def _losses(found: Sequence[topics.GroupPosition]) -> Iterator[str]:
    for each in [each for each in found if each.committed < each.start][:MOST_NAMED]:
        yield (
            f"Records of {_place(each)} were deleted before the group read them: it committed {each.committed}, "
            f"and the first offset is {each.start}."
        )
    unknown = [each for each in found if each.end < 0]
    if unknown:
        yield f"The end of {count(len(unknown), 'partition')} is not known, {_place(unknown[0])} for example."


def _moving(known: Known) -> Iterator[str]:
    read = {each.topic for each in known.group.positions}
    for move in known.moves:
        if move.state in MOVING and move.spec.topic in read:
            yield f"Topic {move.spec.topic} moves to {move.spec.target_cluster} with its records: {MOVING[move.state]}."


def _place(of: topics.GroupPosition) -> str:
    return f"{of.topic}/{of.partition} on {of.cluster}"
