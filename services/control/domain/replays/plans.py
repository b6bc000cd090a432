"""Plans of a reset: the new offsets of a group or an instance, and the instances that have to stop for the reset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from mesh.instance_names import INSTANCES
from mesh.routing import Place, RoutingTable
from mesh.rpc import replays
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.log_ranges import LogRange
from services.control.domain.rules.effects import OffsetKeepers
from services.control.domain.sidecars.instances import Instances

NOWHERE = -1
"""The answer of clusters for a time behind the end; also the offset of a group that has never committed."""
MOST_NAMED = 10

Member = tuple[str, str]
"""A member of a group: its client id, and its name in messages."""


def place_of(table: RoutingTable, topic: str, field: str, way_out: str = "") -> Place:
    """The place of a topic, for clients of which nothing is known."""
    route = table.route(topic)
    if route is None:
        text = f"topic {topic!r} lives nowhere: no rule leads to a cluster; `meshctl explain` says more"
        raise InvalidField(field, f"{text}; {way_out}" if way_out else text)
    return Place(route.cluster, route.upstream_topic)


def keeper_of(table: RoutingTable, group: str, topic: str, place: Place) -> Place:
    """The place of a group's offsets of a topic."""
    return OffsetKeepers(table).place(group, topic, place)


def partitions_of(asked: replays.ReplayRange, count: int, field: str) -> list[int]:
    """The partitions of a range. `count`: the number of partitions of its topic."""
    if not asked.HasField("partition"):
        return list(range(count))
    if asked.partition >= count:
        text = f"topic {asked.topic!r} has {count} partitions, from 0 to {count - 1}; {asked.partition} is none of them"
        raise InvalidField(field, text)
    return [asked.partition]


def new_place(asked: replays.ReplayRange, log: LogRange, since: int, field: str) -> int:
    """The offset where a partition goes on; `since`: the offset of the first record not older than `start_time`."""
    match asked.WhichOneof("start"):
        case "start_offset":
            if not log.start <= asked.start_offset <= log.end:
                text = f"{asked.start_offset} is not in the log of {asked.topic}/{asked.partition}"
                raise InvalidField(field, f"{text}, which has offsets {log.start} to {log.end}")
            return asked.start_offset
        case "start_time":
            return log.end if since == NOWHERE else since
        case "start_at_end":
            return log.end
        case _:
            return log.start


def planned(topic: str, cluster: str, partition: int, start: int, log: LogRange) -> replays.ReplayPartition:
    return replays.ReplayPartition(
        topic=topic, cluster=cluster, partition=partition, start_offset=start, end_offset=log.end, position=start,
        committed_before=NOWHERE,
    )  # fmt: skip


def to_be_stopped(
    group: str, members: Sequence[Member], known: Instances, is_alive: Callable[[str], bool], *, stop: bool
) -> list[str]:
    """Instances that have to leave the group during the reset.

    NotAllowed while the group has members that nobody may stop, or that control can't stop. A member belongs to a
    sidecar if its client id is the sidecar's name. A sidecar has at most as many such members as it holds instances of
    the group.
    """
    mine = [each for each in known.values() if each.group == group and not each.drained and is_alive(each.sidecar)]
    if not stop:
        if members:
            text = f"group {group!r} has {_count(len(members), 'member')} ({_named(name for _, name in members)})"
            raise NotAllowed(
                "GROUP_HAS_MEMBERS",
                f"groups/{group}",
                f"{text}; stop them, or set stop: those that sidecars hold are then drained, and go on afterwards",
            )
        return []
    strangers = _strangers(members, Counter(each.sidecar for each in mine))
    if strangers:
        raise NotAllowed(
            "GROUP_HAS_OTHER_MEMBERS",
            f"groups/{group}",
            f"group {group!r} has members that no sidecar holds, and that control can't stop: {_named(strangers)}; "
            "stop them, then try again",
        )
    paused = sorted(each.name.removeprefix(INSTANCES) for each in mine if each.paused)
    if paused:
        raise NotAllowed(
            "GROUP_HAS_PAUSED_MEMBERS",
            f"groups/{group}",
            f"an operator has paused {_named(paused)} of group {group!r}, and a reset would let it go on; resume it, "
            "or drain it (what is drained stays so), then try again",
        )
    return sorted(each.name for each in mine)


def _strangers(members: Iterable[Member], held: Counter[str]) -> list[str]:
    left = Counter(held)
    found: list[str] = []
    for client_id, name in members:
        if left[client_id] > 0:
            left[client_id] -= 1
        else:
            found.append(name)
    return found


def _named(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return f"{', '.join(every[:MOST_NAMED])}{more}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def by_keeper(
    table: RoutingTable, group: str, partitions: Iterable[replays.ReplayPartition]
) -> Mapping[str, dict[tuple[str, int], int]]:
    """Cluster -> (topic there, partition) -> offset: the offsets that control has to set on each cluster.

    NotAllowed if a topic has moved meanwhile: an offset of one log means nothing in another log.
    """
    found: dict[str, dict[tuple[str, int], int]] = {}
    for each in partitions:
        place = place_of(table, each.topic, "spec.ranges")
        if place.cluster != each.cluster:
            text = f"topic {each.topic!r} has moved from {each.cluster} to {place.cluster} meanwhile"
            raise NotAllowed("TOPIC_MOVED", f"topics/{each.topic}", f"{text}: plan the reset anew")
        keeper = keeper_of(table, group, each.topic, place)
        found.setdefault(keeper.cluster, {})[keeper.upstream_topic, each.partition] = each.start_offset
    return found
