"""The course and the end of replays, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mesh.instance_names import INSTANCES
from mesh.rpc import events, replays
from services.control.domain.replays.copies import SAME_NAME
from services.control.domain.replays.course import totals_of
from services.control.domain.replays.replays import REPLAYS, WORDS
from services.control.domain.sidecars.commands import SIDECARS
from services.control.presentation.sidecars import moment_text

MOST_RANGES = 5
"""Ranges that one sentence names; of further ranges it says only the number."""


def started(event: events.Event) -> Iterator[str]:
    replay = event.replay_started.replay
    dry = " (only counted)" if replay.spec.dry_run else ""
    yield f"replay {short(replay.name)}: {_what(replay.spec)}{dry}"
    if replay.stopped:
        names = ", ".join(each.removeprefix(INSTANCES) for each in replay.stopped)
        yield f"replay {short(replay.name)} stops {names} for as long as it takes"


def assigned(event: events.Event) -> str:
    of = event.replay_assigned
    return f"replay {short(of.name)} is carried out by {of.member.removeprefix(SIDECARS)}"


def progressed(event: events.Event) -> str:
    of = event.replay_progressed
    return f"replay {short(of.name)}: {_counts(of.totals if of.HasField('totals') else totals_of(of.partitions))}"


def cancel_ordered(event: events.Event) -> str:
    return f"replay {short(event.replay_cancel_ordered.name)} is to end where it is"


def ended(event: events.Event) -> str:
    end = event.replay_ended
    why = f": {end.description}" if end.description else ""
    return f"replay {short(end.name)} {WORDS.get(end.state, 'ended in a way that this release does not know')}{why}"


def short(name: str) -> str:
    return name.removeprefix(f"{REPLAYS}/")


def _counts(of: replays.ReplayTotals) -> str:
    return f"{of.records} records done{f', {of.failed} failed' if of.failed else ''}"


def _what(spec: replays.ReplaySpec) -> str:
    ranges = [_range(each) for each in spec.ranges[:MOST_RANGES]]
    more = f" and {len(spec.ranges) - MOST_RANGES} more ranges" if len(spec.ranges) > MOST_RANGES else ""
    records = f"{'dead letters of ' if spec.dead_letters else ''}{', '.join(ranges)}{more}"
    match spec.WhichOneof("destination"):
        case "backend":
            whose = f"the backend of {spec.backend.sidecar}" if spec.backend.sidecar else "a backend"
            return f"{records} to {whose}{_rate(spec)}"
        case "source":
            where = f"to topic {spec.source.topic}" if spec.source.topic else "back to where they came from"
            return f"{records} {where}{_rate(spec)}"
        case "seek":
            return f"consumer {spec.seek.instance.removeprefix(INSTANCES)} goes on at {records}"
        case "group":
            return f"group {spec.group.group} goes on at {records}"
        case "topic":
            return _copy(records, spec)
        case "profile":
            sample = f" (the last {spec.profile.sample} of each partition)" if spec.profile.sample else ""
            return f"the records of {records} are looked at{sample}{_rate(spec)}"
        case _:
            return f"{records} to a place that this release does not know"


def _copy(records: str, spec: replays.ReplaySpec) -> str:
    copy = spec.topic
    source = f"{records} on {copy.source_cluster}" if copy.source_cluster else records
    archive = {replays.REPLAY_ARCHIVE_ONLY: " of the archive", replays.REPLAY_ARCHIVE_NEVER: " without the archive"}
    target = f"topic {copy.topic}" if copy.topic not in ("", SAME_NAME) else "the topic of the same name"
    where = f"{target} on {copy.cluster}" if copy.cluster else target
    only = f", only where {copy.filter}" if copy.filter else ""
    changed = f", with {_number(len(copy.transforms), 'change')}" if copy.transforms else ""
    times = ", with the times of the copies" if copy.timestamps == replays.REPLAY_TIMESTAMPS_NOW else ""
    by_key = ", partitions by key" if copy.partitioning == replays.REPLAY_PARTITIONING_BY_KEY else ""
    forced = ", whatever the retention there" if copy.force else ""
    how = f"{only}{changed}{times}{by_key}{forced}{_rate(spec)}"
    return f"{source}{archive.get(copy.archive, '')} copied to {where}{how}"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rate(spec: replays.ReplaySpec) -> str:
    return f" at {spec.rate:g} records a second" if spec.rate else ""


def _range(each: replays.ReplayRange) -> str:
    where = f"{each.topic}/{each.partition}" if each.HasField("partition") else each.topic or "all topics"
    match each.WhichOneof("start"):
        case "start_offset":
            start = f"from {each.start_offset}"
        case "start_time":
            start = f"from {moment_text(each.start_time)}"
        case "start_at_end":
            return f"{where} at the end"
        case _:
            start = "from the first record"
    match each.WhichOneof("end"):
        case "end_offset":
            return f"{where} {start} to {each.end_offset}"
        case "end_time":
            return f"{where} {start} to {moment_text(each.end_time)}"
        case _:
            return f"{where} {start}"


SENTENCES: dict[str, Callable[[events.Event], str]] = {
    "replay_assigned": assigned,
    "replay_progressed": progressed,
    "replay_cancel_ordered": cancel_ordered,
    "replay_ended": ended,
}
"""Payload -> its sentence."""
