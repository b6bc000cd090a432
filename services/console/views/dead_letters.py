"""Dead letters: their topics, why records failed, and a redrive: a plan first, then the redrive of what was counted."""

from __future__ import annotations

import asyncio

from mesh import durations
from mesh.judging.records import Record
from mesh.rpc import admin, replays, topics
from mesh.rpc.dead_letters import REASONS
from mesh.wording import short
from services.console import words
from services.console.asking import Ask, change, choice, here, search, wrong
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Field, Form, Moved, Notice, Page, Part, Table, Tone, hidden
from services.console.records.letters import MOST_TEXT, Letter, letter_of
from services.console.records.texts import shown
from services.console.records.wanted import Start, Wanted, positions_of, positions_text
from services.console.views.records import read_as_viewer, said_why, time_text
from services.console.views.topics import not_known

ENDING = ".dlq"
"""The default of the sidecars' DEAD_LETTER_EXTENSION."""
LISTED = 20
"""Topics of a page: control asks a cluster for the offsets of each."""
AT_ONCE = 4
LETTERS = 20
PLAN_WAIT_S, PLAN_TIMEOUT_S = 5.0, 15.0
"""Control answers when the plan is known, or after the first time."""
LEAD = "Records that a backend could not process. Sidecars keep them, with the reason, and write them back unchanged."
SOURCE, BACKEND = "source", "backend"
FIELDS = ("failed", "record_key", "partition", "offsets", "first", "end", "rate")


async def listing(ask: Ask) -> Page:
    ending, prefix = ask.said("ending") or ENDING, ask.said("prefix")
    request = topics.ListTopicsRequest(part=ending, prefix=prefix, page_size=LISTED, page_token=ask.page_token)
    stubs = ask.caller.stubs
    found = await ask.caller.call(stubs.topics.ListTopics, request)
    names = [each for each in found.topics if short(each.name).endswith(ending)]
    turns = asyncio.Semaphore(AT_ONCE)

    async def kept(topic: str) -> str:
        async with turns:
            try:
                told = await ask.caller.call(stubs.decisions.Explain, admin.ExplainRequest(topic=topic))
            except CallError:
                return words.NONE
            known = [each for each in told.live_partitions if each.start >= 0]
            return f"{sum(each.end - each.start for each in known):,}" if known else words.NONE

    counts = await asyncio.gather(*(kept(short(each.name)) for each in names))
    rows: list[Cells] = [
        [
            Cell(short(each.name), here(f"/dead-letters/{short(each.name)}")), number,
            Cell(of := short(each.name).removesuffix(ending), here(f"/topics/{of}")), each.cluster,
        ]
        for each, number in zip(names, counts, strict=True)
    ]  # fmt: skip
    note = "Offsets count markers of transactions, too, and letters that were redriven: a redrive deletes nothing."
    columns = ("Topic of dead letters", "Offsets that are kept", "Of", "Cluster")
    table = Table("Topics", columns, rows, f"No topic ends with {ending}.", note, ask.more(found.next_page_token))
    form = search(
        "/dead-letters", "Show", Field("ending", "Names end with", value=ending, help="As DEAD_LETTER_EXTENSION."),
        Field("prefix", "Names begin with", value=prefix), title="Filter",
    )  # fmt: skip
    parts: list[Part] = [form, *not_known(found.problems), table]
    return Page("Dead letters", parts, lead=LEAD, links=[Cell("Replays and redrives", "/replays")])


async def one(ask: Ask) -> Page:
    topic = ask.parameters["topic"]
    if ask.said("at"):
        try:
            start, positions = Start.BEFORE, positions_of(ask.said("at"))
        except ValueError:
            raise wrong("at", "this is no position of a page") from None
    else:
        start, positions = Start.NEWEST, {}
    partition = ask.number("partition") if ask.said("partition") else None
    parts: list[Part] = []
    try:
        found = await read_as_viewer(ask, Wanted(topic, start, partition, positions=positions, most=LETTERS))
    except CallError as failure:
        parts.append(said_why(ask, failure))
    else:
        rows = [_row(ask, topic, each) for each in found.records]
        more = here(ask.path, partition=ask.said("partition"), at=positions_text(found.on)) if found.on else ""
        columns = ("Dead letter", "Failed at", "Reason", "Attempts", "Error", "Group", "From", "Key", "Value")
        redrives = ("Redrive",) if ask.may_change else ()
        table = Table("The newest", (*columns, *redrives), rows, "There is no dead letter.", more=more)
        parts += [*([Notice(f"The look ended early: {found.bound}.", Tone.WARNING)] if found.bound else []), table]
    if ask.may_change:
        parts.append(_form(ask, topic))
    links = [Cell("Topic", here(f"/topics/{topic}")), Cell("All its records", here("/records", topic=topic))]
    return Page(f"Dead letters in {topic}", parts, lead=LEAD, links=links)


def _row(ask: Ask, topic: str, record: Record) -> Cells:
    letter = letter_of(record)
    partition, offset = record.partition(), record.offset()
    row: list[Cell | str | int] = [
        Cell(f"{partition}/{offset}", here("/records/one", topic=topic, partition=partition, offset=offset)),
        time_text(record),
        Cell(_text(letter.reason), tone=Tone.BAD) if letter.reason else words.NONE,
        _text(letter.attempts),
        _text(letter.first_line),
        Cell(_text(letter.group), here(f"/groups/{letter.group}")) if letter.group else words.NONE,
        _origin(letter),
        _text(record.key()),
        _text(record.value()),
    ]
    if ask.may_change:
        row.append(Cell(f"Redrive {partition}/{offset}", here(
            f"/dead-letters/{topic}/redrive", partition=partition, offsets=offset,
        )))  # fmt: skip
    return row


def _text(of: str | bytes | None) -> str:
    seen = shown(of.encode() if isinstance(of, str) else of, MOST_TEXT)
    return f"{seen.text}{' ...' if seen.is_cut else ''}" or words.NONE


def _origin(of: Letter) -> Cell | str:
    """The record that failed; its topic may have deleted it meanwhile."""
    if not of.topic or of.partition is None or of.offset is None:
        return words.NONE
    place = here("/records/one", topic=of.topic, partition=of.partition, offset=of.offset)
    return Cell(f"{_text(of.topic)} {of.partition}/{of.offset}", place)


async def new(ask: Ask) -> Page:
    """The form of a redrive, for one letter or a range."""
    topic = ask.parameters["topic"]
    if not ask.may_change:
        return Page(f"Redrive {topic}", [Notice("A redrive needs a log-in.", Tone.WARNING, [_log_in(ask)])])
    return Page(f"Redrive dead letters in {topic}", [_form(ask, topic)], lead=LEAD)


def _log_in(ask: Ask) -> Cell:
    return Cell("Log in", here("/login", next=here(ask.path, **ask.query)))


def _form(ask: Ask, topic: str) -> Form:
    said = {name: ask.said(name) for name in FIELDS}
    fields = (
        hidden("topic", topic),
        choice("to", "Give them to", ask.said("to") or SOURCE, SOURCE, BACKEND),
        choice("failed", "Only with reason", said["failed"], "", *REASONS),
        Field("record_key", "Only with key", value=said["record_key"]),
        Field("partition", "Partition", value=said["partition"], help="Empty: all."),
        Field("offsets", "Only these offsets", value=said["offsets"], help="12, 15; needs a partition."),
        Field("first", "From offset", value=said["first"], help="Needs a partition."),
        Field("end", "Before offset", value=said["end"], help="Needs a partition."),
        Field("rate", "Records a second, at most", value=said["rate"], help="Empty: no bound."),
    )
    return change("Redrive", "/dead-letters/plan", "Count them first", *fields)


async def plan(ask: Ask) -> Moved:
    """A sidecar counts what would be redriven. It is a replay that delivers nothing; its page has the next step."""
    request = replays.StartReplayRequest(
        spec=_spec(ask), reason=ask.said("reason"), request_id=ask.said("request_id"),
        wait=durations.of_s(PLAN_WAIT_S),
    )  # fmt: skip
    made = await ask.caller.call(ask.caller.stubs.replays.StartReplay, request, timeout_s=PLAN_TIMEOUT_S)
    return Moved(f"/replays/{short(made.name)}")


def _spec(ask: Ask) -> replays.ReplaySpec:
    topic, to = ask.said("topic"), ask.said("to")
    if not topic:
        raise wrong("topic", "is missing")
    if to not in (SOURCE, BACKEND):
        raise wrong("to", f"{to!r} is neither {SOURCE} nor {BACKEND}")
    spec = replays.ReplaySpec(dead_letters=True, dry_run=True, rate=float(ask.number("rate")))
    wanted = spec.ranges.add(topic=topic)
    if ask.said("partition"):
        wanted.partition = ask.number("partition")
    if ask.said("first"):
        wanted.start_offset = ask.number("first")
    if ask.said("end"):
        wanted.end_offset = ask.number("end")
    if ask.said("failed"):
        spec.filter.reasons.append(ask.said("failed"))
    if ask.said("record_key"):
        spec.filter.keys.append(ask.said("record_key"))
    for each in ask.said("offsets").replace(",", " ").split():
        if not each.isdecimal() or len(each) > 18:
            raise wrong("offsets", f"{each!r} is no offset; expected 12, 15")
        spec.filter.offsets.append(int(each))
    getattr(spec, to).SetInParent()
    return spec


def next_step(of: replays.Replay, *, may_change: bool) -> list[Part]:
    """The parts that the page of a plan has besides the plan."""
    if not of.spec.dry_run or not of.spec.dead_letters:
        return []
    parts: list[Part] = [Notice("This is a plan: a sidecar only counts, and delivers nothing.")]
    if of.state != replays.REPLAY_STATE_DONE:
        return parts
    is_counted = of.totals.HasField("planned")
    number = of.totals.planned if is_counted else of.totals.offsets
    if not number:
        return [*parts, Notice("No dead letter fits, so there is nothing to redrive.", Tone.WARNING)]
    if may_change:
        text = words.count(number, "dead letter" if is_counted else "offset")
        to = "the backend" if of.spec.HasField("backend") else "the topics that they came from"
        title = f"Redrive {text} to {to}"
        parts.append(change(title, "/dead-letters/redrive", f"Redrive {text}", hidden("plan", short(of.name))))
    return parts


async def redrive(ask: Ask) -> Moved:
    """The very offsets that the plan has, so letters that came since then are left alone."""
    request = replays.GetReplayRequest(name=f"replays/{ask.said('plan')}")
    of: replays.Replay = await ask.caller.call(ask.caller.stubs.replays.GetReplay, request)
    if not (of.spec.dry_run and of.spec.dead_letters and of.state == replays.REPLAY_STATE_DONE):
        raise wrong("plan", f"replay {ask.said('plan')} is no finished plan of a redrive")
    counted = [each for each in of.partitions if each.end_offset > each.start_offset]
    if not counted:
        raise wrong("plan", "control has forgotten its partitions, or it found none: make a new plan")
    spec = replays.ReplaySpec()
    spec.CopyFrom(of.spec)
    spec.dry_run = False
    del spec.ranges[:]
    for each in counted:
        spec.ranges.add(
            topic=each.topic, partition=each.partition, start_offset=each.start_offset, end_offset=each.end_offset
        )
    getattr(spec, spec.WhichOneof("destination") or SOURCE).group = ""  # its own: control names it
    started = replays.StartReplayRequest(
        spec=spec,
        reason=ask.said("reason"),
        request_id=ask.said("request_id"),
        wait=durations.of_s(PLAN_WAIT_S),
    )
    made = await ask.caller.call(ask.caller.stubs.replays.StartReplay, started, timeout_s=PLAN_TIMEOUT_S)
    return Moved(f"/replays/{short(made.name)}")
