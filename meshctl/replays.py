"""How replays are said and read: places in a topic, ranges, plans and progress in words. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import click

from mesh.rpc import events, replays
from mesh.wording import word
from meshctl.moments import in_utc, moment_of
from meshctl.output import count, moment
from meshctl.record_rules import transform_text
from meshctl.replay_progress import ENDS, records_of, share_of

FORMS = "an offset (1500), a time (2026-11-21T20:00:00Z), or so long ago (-2h, -1h30m, -7d)"
SAME_NAME = "{topic}"
"""In the name of a copy: the topic of each record."""
FEW = 100
"""Partitions that are shown one by one; of more, a line for each topic."""
MOST_RANGES = 5
"""Ranges named in one cell; further ones are only counted."""
_RANGE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)(?:/(?P<partition>\d+))?(?::(?P<start>.*?)\.\.(?P<end>.*))?")


Where = int | datetime
"""A place in a topic."""


def where(text: str, now: datetime) -> Where:
    """See `FORMS`; The message of a ValueError names the error."""
    wanted = text.strip()
    if wanted.isdecimal():
        return int(wanted)
    if wanted.startswith("-"):
        return now - (moment_of(f"+{wanted[1:]}", now) - now)
    if wanted.startswith("+"):
        raise ValueError("no record is there yet")
    return in_utc(wanted)


class Place(click.ParamType):
    """`--from`, `--until`: see `FORMS`."""

    name = "place"

    def convert(self, value: str | Where, param: click.Parameter | None, ctx: click.Context | None) -> Where:
        if not isinstance(value, str):
            return value
        try:
            return where(value, datetime.now(UTC))
        except (ValueError, OverflowError) as error:
            self.fail(f"{value!r} is no place in a topic: {error}. Possible are {FORMS}", param, ctx)


class Range(click.ParamType):
    """`--range`: "orders/0:10..25", "orders:-2h..", "orders/3"."""

    name = "range"

    def convert(
        self, value: str | replays.ReplayRange, param: click.Parameter | None, ctx: click.Context | None
    ) -> replays.ReplayRange:
        if isinstance(value, replays.ReplayRange):
            return value
        found = _RANGE.fullmatch(value.strip())
        if found is None:
            forms = "TOPIC[/PARTITION][:FROM..UNTIL], as in orders/0:10..25"
            self.fail(f"{value!r} is no range; expected {forms}", param, ctx)
        place = Place()
        start, end = (place.convert(text, param, ctx) if text else None for text in (found["start"], found["end"]))
        partition = None if found["partition"] is None else int(found["partition"])
        return range_of(found["topic"], partition, start, end)


def range_of(topic: str, partition: int | None, start: Where | None, end: Where | None) -> replays.ReplayRange:
    """None for a partition: all; for a place: as far as there is something."""
    made = replays.ReplayRange(topic=topic, partition=partition)
    for name, place in (("start", start), ("end", end)):
        match place:
            case datetime():
                getattr(made, f"{name}_time").FromDatetime(place)
            case int():
                setattr(made, f"{name}_offset", place)
    return made


def ranges_of(
    topics: Sequence[str], partitions: Sequence[int], start: Where | None, end: Where | None
) -> list[replays.ReplayRange]:
    """Ranges of each topic, for all or the named partitions. UsageError for an offset without a partition."""
    if not partitions and (isinstance(start, int) or isinstance(end, int)):
        raise click.UsageError("an offset is one of a partition: --partition P; a time may be one of all of them")
    wanted: Sequence[int | None] = partitions or [None]
    return [range_of(topic, partition, start, end) for topic in topics for partition in wanted]


def state(replay: replays.Replay) -> str:
    """ "pending", "running", "done"; "cancelling" while its end is asked for."""
    if replay.cancelling and replay.state not in ENDS:
        return "cancelling"
    return word(replays.ReplayState, replay.state)


def what(spec: replays.ReplaySpec) -> str:
    """ "dead letters of orders to the backend of s1"."""
    named = [range_text(each) for each in spec.ranges[:MOST_RANGES]]
    more = f" and {len(spec.ranges) - MOST_RANGES} more" if len(spec.ranges) > MOST_RANGES else ""
    records = f"{'dead letters of ' if spec.dead_letters else ''}{', '.join(named)}{more}"
    match spec.WhichOneof("destination"):
        case "backend":
            return f"{records} to {f'the backend of {spec.backend.sidecar}' if spec.backend.sidecar else 'a backend'}"
        case "source":
            return (
                f"{records} {f'to topic {spec.source.topic}' if spec.source.topic else 'back to where they came from'}"
            )
        case "seek":
            return f"{spec.seek.instance.removeprefix('instances/')} goes on at {records}"
        case "group":
            return f"group {spec.group.group} goes on at {records}"
        case "topic":
            return f"{records} {_copy(spec.topic)}"
        case "profile":
            return f"the records of {records} are looked at"
        case _:
            return f"{records} to a place that this meshctl does not know"


def _copy(of: replays.ReplayToTopic) -> str:
    """ "of c1 copied to orders-again on c2"."""
    source = f"of {of.source_cluster} " if of.source_cluster else ""
    target = of.topic if of.topic not in ("", SAME_NAME) else "the same name"
    return f"{source}copied to {target}{f' on {of.cluster}' if of.cluster else ''}"


def range_text(each: replays.ReplayRange) -> str:
    """ "orders/0 10..25", "orders -.."."""
    topic = f"{each.topic}/{each.partition}" if each.HasField("partition") else each.topic or "all topics"
    match each.WhichOneof("start"):
        case "start_at_end":
            return f"{topic} at the end"
        case "start_offset":
            start = str(each.start_offset)
        case "start_time":
            start = moment(each.start_time)
        case _:
            start = "first"
    match each.WhichOneof("end"):
        case "end_offset":
            end = str(each.end_offset)
        case "end_time":
            end = moment(each.end_time)
        case _:
            return topic if start == "first" else f"{topic} from {start}"
    return f"{topic} {start} to {end}"


PLAN = ("TOPIC", "PARTITION", "FROM", "TO", "RECORDS")
WIDE_PLAN = ("TOPIC", "PARTITIONS", "RECORDS")
MOVE_PLAN = ("TOPIC", "CLUSTER", "PARTITION", "FROM", "TO", "RECORDS AGAIN", "SKIPPED", "LEFT TO READ")
COURSE = ("TOPIC", "PARTITION", "FROM", "TO", "NEXT", "RECORDS", "FAILED")
WIDE_COURSE = ("TOPIC", "PARTITIONS", "THROUGH", "RECORDS", "FAILED")
Rows = tuple[Sequence[str], list[Sequence[object]]]
"""Columns and rows."""


def plan(replay: replays.Replay) -> Rows:
    """The columns and rows of a replay's plan."""
    if replay.spec.WhichOneof("destination") in ("seek", "group"):
        return MOVE_PLAN, [_move(each) for each in replay.partitions]
    if len(replay.partitions) > FEW:
        return WIDE_PLAN, [(topic, len(parts), _records(*parts)) for topic, parts in _by_topic(replay)]
    return PLAN, [
        (each.topic, each.partition, each.start_offset, each.end_offset, _records(each)) for each in replay.partitions
    ]


def plan_text(totals: replays.ReplayTotals) -> str:
    """ "5000 partitions, at most 1200000 records"."""
    records = totals.planned if totals.HasField("planned") else totals.offsets
    return f"{totals.partitions} partitions, {'' if totals.HasField('planned') else 'at most '}{records} records"


def course(replay: replays.Replay, *, all_partitions: bool) -> Rows:
    """How far it is."""
    if len(replay.partitions) > FEW and not all_partitions:
        return WIDE_COURSE, [
            (
                topic, len(parts), sum(share_of(each) >= 1 for each in parts), records_of(parts),
                sum(each.failed for each in parts),
            )
            for topic, parts in _by_topic(replay)
        ]  # fmt: skip
    return COURSE, [
        (
            each.topic, each.partition, each.start_offset, each.end_offset, each.position, each.records, each.failed,
        )
        for each in replay.partitions
    ]  # fmt: skip


def _by_topic(replay: replays.Replay) -> Iterable[tuple[str, list[replays.ReplayPartition]]]:
    found: dict[str, list[replays.ReplayPartition]] = {}
    for each in replay.partitions:
        found.setdefault(each.topic, []).append(each)
    return found.items()


def _records(*parts: replays.ReplayPartition) -> str:
    if all(each.HasField("planned") for each in parts):
        return str(sum(each.planned for each in parts))
    return f"at most {sum(max(0, each.end_offset - each.start_offset) for each in parts)}"


def _move(each: replays.ReplayPartition) -> Sequence[object]:
    was, to = each.committed_before, each.start_offset
    again, skipped = (max(0, was - to), max(0, to - was)) if was >= 0 else ("-", "-")
    return (
        each.topic, each.cluster, each.partition, "nowhere" if was < 0 else was, to, again, skipped,
        max(0, each.end_offset - to),
    )  # fmt: skip


def facts(replay: replays.Replay) -> Iterator[tuple[str, str]]:
    """The properties of a replay, as names and texts."""
    yield "state", state(replay) + (f": {replay.description}" if replay.description else "")
    yield "member", replay.member.removeprefix("members/") or "-"
    yield "asked by", f"{replay.actor}, {moment(replay.create_time)}{f': {replay.reason}' if replay.reason else ''}"
    if replay.HasField("end_time"):
        yield "ended", moment(replay.end_time)
    if replay.spec.rate:
        yield "rate", f"{replay.spec.rate:g} records/s at most"
    wanted = replay.spec.filter
    chosen = [f"{name} {', '.join(map(str, getattr(wanted, name)))}" for name in ("reasons", "keys", "offsets")]
    if replay.spec.HasField("filter"):
        yield "only", "; ".join(text for text in chosen if " " in text.strip())
    if replay.spec.HasField("topic"):
        yield from _copy_facts(replay.spec.topic)
    if replay.stopped:
        yield "stops", ", ".join(each.removeprefix("instances/") for each in replay.stopped)


def _copy_facts(of: replays.ReplayToTopic) -> Iterator[tuple[str, str]]:
    if of.filter:
        yield "only", of.filter
    for each in of.transforms:
        yield "changes", transform_text(each)
    said = (
        ("times of the copies", of.timestamps == replays.REPLAY_TIMESTAMPS_NOW),
        ("partitions by key", of.partitioning == replays.REPLAY_PARTITIONING_BY_KEY),
        ("whatever the retention there", of.force),
        ("of the archive alone", of.archive == replays.REPLAY_ARCHIVE_ONLY),
        ("without the archive", of.archive == replays.REPLAY_ARCHIVE_NEVER),
    )
    if any(is_so for _, is_so in said):
        yield "how", ", ".join(text for text, is_so in said if is_so)


def event(of: events.Event) -> str:
    """The decision about a replay, as a sentence; empty for events about something else."""
    match of.WhichOneof("payload"):
        case "replay_started":
            replay = of.replay_started.replay
            return f"replay {short(replay.name)}: {what(replay.spec)}{' (only counted)' if replay.spec.dry_run else ''}"
        case "replay_assigned":
            assigned = of.replay_assigned
            return f"replay {short(assigned.name)} is carried out by {assigned.member.removeprefix('members/')}"
        case "replay_progressed":
            told = of.replay_progressed
            records = told.totals.records if told.HasField("totals") else records_of(told.partitions)
            return f"replay {short(told.name)}: {count(records, 'record')} done"
        case "replay_cancel_ordered":
            return f"replay {short(of.replay_cancel_ordered.name)} is to end where it is"
        case "replay_ended":
            ended = of.replay_ended
            said = state(replays.Replay(state=ended.state))
            return f"replay {short(ended.name)} {said}{f': {ended.description}' if ended.description else ''}"
        case _:
            return ""


def short(name: str) -> str:
    return name.removeprefix("replays/")
