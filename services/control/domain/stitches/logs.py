"""The parts of stitched logs: a cut adds the next part, an expired part leaves.

Theory of operation
1. A cut names the next part before the rules lead the topic there, so `in_force` counts the parts up to the topic's
   present stay. A part that names a stay that never came is taken back, or is replaced by the next cut.
2. The next part begins, as clients see it, where the source ends. Its shift is that offset less the end of the target.
3. A part has expired when its cluster has no record of it any more. Only the oldest part leaves. The last one stays,
   because its shift counts for as long as the topic lives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from mesh.routing import Place, RoutingTable, Stay
from mesh.rpc import events, stitches
from mesh.stitches.codec import log_from_proto
from mesh.stitches.log import MOST_PARTS, LogPart
from services.control.domain.errors import NotAllowed
from services.control.domain.log_ranges import LogRange

STITCHES: Final = "stitchedlogs"
"""The stream of all decisions about stitched logs."""
MOST_LOGS: Final = 10_000
MOST_ENTRIES: Final = 100_000
"""Partitions of all parts of all logs: each gateway has them in memory, and gets them with each table: some 1 MB."""
NAMED: Final = 20


def log_of(table: RoutingTable, topic: str) -> stitches.StitchedLog | None:
    """The topic's log; None if it is not stitched."""
    policy = table.policies.stitch_policy
    if policy is None:
        return None
    place = bisect_left(policy.logs, topic.encode(), key=lambda each: each.topic.encode())
    return policy.logs[place] if place < len(policy.logs) and policy.logs[place].topic == topic else None


def logs_of(table: RoutingTable) -> Mapping[str, stitches.StitchedLog]:
    """All stitched logs by topic."""
    policy = table.policies.stitch_policy
    return {} if policy is None else {each.topic: each for each in policy.logs}


def in_force(log: stitches.StitchedLog | None, stay: Stay) -> tuple[LogPart, ...]:
    """The parts that count while the topic stays there; none if its log is not stitched there."""
    return () if log is None else log_from_proto(log).up_to(stay)


def end_of(parts: Sequence[LogPart], place: int, partition: int) -> int:
    """The end of a part that is not the last one, as its cluster counts."""
    return parts[place + 1].starts[partition] - parts[place].shifts[partition]


def continued(
    table: RoutingTable, topic: str, next_stay: Stay, ends: Mapping[int, int], bases: Mapping[int, int], now: datetime
) -> stitches.StitchedLog:
    """The log with one more part. `ends`: of the source, `bases`: of the target, as their clusters count."""
    route = table.route(topic)
    assert route is not None, "the rules lead a topic that moves to its source"
    known = log_of(table, topic)
    before = len(in_force(known, route.stay))
    log = stitches.StitchedLog(topic=topic) if known is None else with_parts(known, known.parts[:before])
    if not log.parts:
        log.parts.append(_part(route.stay, dict.fromkeys(ends, 0), dict.fromkeys(ends, 0)))
    shifts = [each.shift for each in log.parts[-1].partitions]
    starts = {number: ends[number] + shifts[number] for number in sorted(ends)}
    part = _part(next_stay, starts, {number: starts[number] - bases[number] for number in starts})
    part.begin_time.FromDatetime(now)
    log.parts.append(part)
    return log


def with_parts(log: stitches.StitchedLog, parts: Iterable[stitches.LogPart]) -> stitches.StitchedLog:
    """The same log with other parts."""
    after = stitches.StitchedLog(topic=log.topic, fork_of=log.fork_of, past_bytes_per_second=log.past_bytes_per_second)
    after.parts.extend(parts)
    return after


def whole(stay: Stay) -> stitches.LogPart:
    """The only part of a log that is not stitched; it tells no partitions."""
    return _part(stay, {}, {})


def _part(stay: Stay, starts: Mapping[int, int], shifts: Mapping[int, int]) -> stitches.LogPart:
    partitions = [stitches.LogPartPartition(start=starts[each], shift=shifts[each]) for each in sorted(starts)]
    return stitches.LogPart(
        cluster_name=stay.cluster, topic=stay.upstream_topic, visit=stay.visit, partitions=partitions
    )


def unidentified(log: stitches.StitchedLog) -> dict[str, set[str]]:
    """Cluster -> the topics there of the parts whose topic ids are not known."""
    found: dict[str, set[str]] = {}
    for part in log.parts:
        if not part.topic_id:
            found.setdefault(part.cluster_name, set()).add(part.topic)
    return found


def identify(log: stitches.StitchedLog, ids: Mapping[str, Mapping[str, bytes]]) -> None:
    """Adds the topic ids, by cluster and topic there, to the parts without one."""
    for part in log.parts:
        part.topic_id = part.topic_id or ids.get(part.cluster_name, {}).get(part.topic, b"")


def is_other(part: LogPart, topic_id: bytes | None) -> bool:
    """Whether the topic of this id at the part's place is another one than the part's; None: there is no topic."""
    return topic_id is None or bool(part.topic_id and topic_id and part.topic_id != topic_id)


def set_to(topic: str, log: stitches.StitchedLog | None) -> events.StitchedLogsChanged:
    """The event that gives a topic this log; None: that of its cluster."""
    return events.StitchedLogsChanged(changes=[stitches.StitchedLogChange(topic=topic, log=log)])


def taken_back(table: RoutingTable, topic: str) -> events.StitchedLogsChanged | None:
    """The event that takes back the part of a cut that was given up; None if there is no such part."""
    log, route = log_of(table, topic), table.route(topic)
    if log is None or route is None:
        return None
    count = len(in_force(log, route.stay))
    if count == len(log.parts) or not count:
        return None
    first = log.parts[0]
    is_own = count == 1 and not any(each.start or each.shift for each in first.partitions)
    return set_to(topic, None if is_own else with_parts(log, log.parts[:count]))


def check_target(topic: str, parts: Sequence[LogPart], target: Place, there: Mapping[int, LogRange]) -> None:
    """Refuses a target whose records would come between those of the log."""
    for place in range(len(parts) - 2, -1, -1):
        if (parts[place].cluster, parts[place].topic) == target:
            wanted = {number: end_of(parts, place, number) for number in there}
            break
    else:
        wanted = {number: each.end for number, each in there.items() if not each.records}
    other = sorted(number for number, each in there.items() if wanted.get(number) != each.end)
    if other:
        number, has = other[0], there[other[0]]
        says = f"ends at {has.end}" + (
            f", and its part of the log ended at {wanted[number]}" if number in wanted else ""
        )
        raise NotAllowed(
            "TARGET_HAS_RECORDS",
            f"topics/{topic}",
            f"partition {number} of {target.upstream_topic!r} on {target.cluster!r} has records that are not of topic "
            f"{topic!r}: it {says}; delete that topic there, or choose another cluster",
        )


def check_room(table: RoutingTable, topic: str, partitions: int) -> None:
    """Refuses one part more than a log can have, or more logs than gateways can hold."""
    logs, route = logs_of(table), table.route(topic)
    assert route is not None, "a topic that moves has a place"
    parts = in_force(logs.get(topic), route.stay)
    if len(parts) >= MOST_PARTS:
        text = (
            f"the log of topic {topic!r} has {len(parts)} parts, and no more are possible; wait until the oldest has "
            f"expired: `meshctl topic parts {topic}` says when"
        )
        raise NotAllowed("TOO_MANY_PARTS", f"topics/{topic}", text)
    if parts and len(parts[-1].shifts) != partitions:
        text = (
            f"topic {topic!r} has {partitions} partitions on {route.cluster!r}, and its log has "
            f"{len(parts[-1].shifts)}: a stitched topic keeps the partitions that it has"
        )
        raise NotAllowed("OTHER_PARTITIONS", f"topics/{topic}", text)
    check_entries(table, topic, 2 * partitions)


def check_entries(table: RoutingTable, topic: str, more: int) -> None:
    """Refuses more logs, or more partitions of all parts, than gateways can hold."""
    logs = logs_of(table)
    entries = sum(len(part.partitions) for log in logs.values() for part in log.parts)
    if (topic not in logs and len(logs) >= MOST_LOGS) or entries + more > MOST_ENTRIES:
        text = (
            f"the mesh has {len(logs)} stitched logs with {entries} partitions in their parts, and {MOST_LOGS} logs "
            f"with {MOST_ENTRIES} are possible; wait until old parts have expired, or move the topic with its records"
        )
        raise NotAllowed("TOO_MANY_STITCHED_LOGS", STITCHES, text)


def refuse_switches(table: RoutingTable, topics: Collection[str], allowed: str = "") -> None:
    """Refuses rules that lead a stitched topic elsewhere: clients would lose its offsets. `allowed`: may go on."""
    logs = logs_of(table)
    stitched = sorted(each for each in topics if each in logs and each != allowed)
    if stitched:
        more = f" and {len(stitched) - NAMED} more" if len(stitched) > NAMED else ""
        raise NotAllowed(
            "LOG_IS_STITCHED",
            f"topics/{stitched[0]}",
            f"the logs of these topics are stitched together from parts on several clusters: "
            f"{', '.join(stitched[:NAMED])}{more}; a rule would drop their parts. Use `meshctl topic move "
            f"{stitched[0]} --to CLUSTER --stitch`",
        )


def refuse_offsets(table: RoutingTable, topic: str) -> None:
    """Refuses a command that works with the offsets of one cluster."""
    if log_of(table, topic) is not None:
        text = (
            f"the log of topic {topic!r} is stitched together from parts on several clusters, and this command knows "
            "the offsets of one cluster only; set offsets with Kafka's own tools, through a gateway"
        )
        raise NotAllowed("LOG_IS_STITCHED", f"topics/{topic}", text)


def topics_on(table: RoutingTable, cluster: str) -> list[str]:
    """The topics whose logs have parts on a cluster."""
    return sorted(
        topic for topic, log in logs_of(table).items() if any(part.cluster_name == cluster for part in log.parts)
    )


def first_left(parts: Sequence[LogPart], starts: Mapping[int, Mapping[int, int]], partition: int) -> int:
    """The first offset of a partition that is left, as clients see it.

    `starts`: place of a part -> partition -> the first offset on its cluster. A part without one counts as whole.
    """
    for place, part in enumerate(parts):
        begin = part.starts[partition]
        known = starts.get(place, {}).get(partition)
        first = begin if known is None else max(begin, known + part.shifts[partition])
        if place == len(parts) - 1 or first < parts[place + 1].starts[partition]:
            return first
    raise ValueError("a log has a part at least")


def as_clients_see(
    parts: Sequence[LogPart], last: Mapping[int, LogRange], old: Mapping[int, Mapping[int, int]]
) -> dict[int, LogRange]:
    """The log over all parts. `last`: the last part's log on its cluster; `old`: first offsets of the earlier parts."""
    starts = {**old, len(parts) - 1: {number: each.start for number, each in last.items()}}
    shifts = parts[-1].shifts
    return {
        number: LogRange(first_left(parts, starts, number), each.end + shifts[number])
        for number, each in last.items()
        if number < len(shifts)
    }


def dissolved(
    table: RoutingTable, topic: str, oldest: Mapping[int, LogRange] | None
) -> events.StitchedLogsChanged | None:
    """The event by which the oldest part leaves; None if it stays.

    `oldest`: the log of its topic on its cluster; None: there is no such topic any more.
    """
    log, route = log_of(table, topic), table.route(topic)
    if log is None or route is None:
        return None
    parts = in_force(log, route.stay)
    if len(parts) < 2:
        return None
    if oldest is not None and not has_expired(parts, 0, oldest):
        return None
    return set_to(topic, with_parts(log, log.parts[1:]))


def has_expired(parts: Sequence[LogPart], place: int, there: Mapping[int, LogRange]) -> bool:
    """Whether the cluster has no record of a part that is not the last."""
    count = len(parts[place].shifts)
    return all(number in there and there[number].start >= end_of(parts, place, number) for number in range(count))


def to_watch(table: RoutingTable, moving: Collection[str]) -> Iterator[tuple[str, LogPart]]:
    """The topics whose oldest part may expire, with that part. A topic that moves just now waits."""
    for topic, log in logs_of(table).items():
        route = table.route(topic)
        parts = () if route is None or topic in moving else in_force(log, route.stay)
        if len(parts) > 1 and parts[0].cluster in table.clusters:
            yield topic, parts[0]


def present_parts(table: RoutingTable, moving: Collection[str]) -> Iterator[tuple[str, LogPart | None]]:
    """The topics with the part that their clients write to; None: no rule leads a fork to a part of its log.

    A topic that moves just now waits.
    """
    for topic, log in logs_of(table).items():
        if topic in moving:
            continue
        route = table.route(topic)
        parts = () if route is None else in_force(log, route.stay)
        if parts and parts[-1].cluster in table.clusters:
            yield topic, parts[-1]
        elif not parts and log.fork_of:
            yield topic, None


def ended(topic: str) -> events.StitchedLogsChanged:
    """The event by which a log is one of parts no more: its present topic is gone."""
    return set_to(topic, None)
