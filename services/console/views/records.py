"""Records of a topic: a look from a place, one record whole, a tail, and a form that writes one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

from mesh.judging.records import Record
from mesh.rpc import admin
from services.console import words
from services.console.asking import Ask, choice, here, search, tick, time_of, wrong
from services.console.outcomes import CONSOLE, CONTROL, STATUS, CallError, Ending
from services.console.parts import (
    Block,
    Cell,
    Cells,
    Control,
    Facts,
    Field,
    File,
    Form,
    Item,
    Notice,
    Page,
    Part,
    Stream,
    Table,
    Tone,
)
from services.console.records.curl import ANY_SIDECAR, MOST, as_curl
from services.console.records.decoding import Contents, Places
from services.console.records.tailing import Turn
from services.console.records.texts import BASE64, HEX, JSON, TEXT, Shown, shown
from services.console.records.wanted import CHOICES, Found, Start, Wanted, positions_of, positions_text

COLUMNS = ("Partition/offset", "Time", "Key", "Headers", "Value")
LEAD = "The console reads through a gateway as you: ACLs, quotas and audit of the gateway count for you."
WHOLE_BYTES = 16 * 1024
"""Bytes of a key or a value on the page of a record: three times as many characters in hex."""
MOST_HEADERS = 5
"""A record in a list shows so many."""
NAMELESS = Contents(None, None)
NEWEST_FIRST = (Start.NEWEST, Start.BEFORE)


async def listing(ask: Ask) -> Page:
    wanted = _wanted(ask)
    form = _form(ask, wanted)
    if not wanted.topic:
        why = ask.records.why_not
        return Page("Records", [form, *([said_why(ask, why)] if why else [])], lead=LEAD)
    try:
        found = await read_as_viewer(ask, wanted)
    except CallError as failure:
        return not_shown(ask, "Records", form, failure)
    links = [Cell("Follow", here("/records/tail", **_same(wanted))), Cell("Topic", f"/topics/{wanted.topic}")]
    if ask.may_change and not ask.records.why_no_writing:
        links.append(Cell("Write a record", here("/records/new", topic=wanted.topic)))
    parts: list[Part] = [form, *_notices(found), _table(ask, wanted, found), _ends(found)]
    return Page(f"Records of {wanted.topic}", parts, lead=LEAD, links=links)


async def one(ask: Ask) -> Page:
    wanted, form = _wanted(ask), ask.said("as")
    if form not in ("", HEX, BASE64):
        raise wrong("as", f"{form!r} is neither {HEX} nor {BASE64}")
    title = f"Record {wanted.partition}/{wanted.offset} of {wanted.topic}"
    try:
        record, contents = await _the_record(ask, wanted)
    except CallError as failure:
        return not_shown(ask, title, None, failure)
    place = _place(wanted, wanted.partition or 0, wanted.offset)
    key_data, value_data = (None, None) if form else contents
    key = shown(record.key(), WHOLE_BYTES, form or HEX, key_data)
    value = shown(record.value(), WHOLE_BYTES, form or HEX, value_data)
    facts: list[Item] = [
        ("Topic", Cell(wanted.topic, f"/topics/{wanted.topic}")),
        ("Partition", record.partition()),
        ("Offset", f"{record.offset():,}"),
        ("Time", time_text(record)),
        ("Key", f"{key.label}, {words.size(key.size)}"),
        ("Value", f"{value.label}, {words.size(value.size)}"),
    ]
    parts: list[Part] = [Facts("The record", facts)]
    for name, what, data in (("Key", "key", key), ("Value", "value", value)):
        if data.text:
            cut = f"The first {words.size(WHOLE_BYTES)} of {words.size(data.size)}. " if data.is_cut else ""
            parts.append(Block(name, data.text, f"{cut}{data.why and f'Not decoded: {data.why}.'}".strip()))
        if data.size:
            parts.append(Notice(f"{name}, whole", items=[Cell("Save as a file", f"{_file(place)}&part={what}")]))
    rows: list[Cells] = [
        [words.NONE if not name else shown(name.encode(), WHOLE_BYTES).text, each.text or each.kind, each.label]
        for name, each in ((name, shown(data, 1024, form or HEX)) for name, data in record.headers() or [])
    ]
    parts.append(Table("Headers", ("Name", "Value", "Form"), rows, "The record has no headers."))
    parts.append(_curl(ask, record))
    links = [
        Cell("Records from here on", here("/records", topic=wanted.topic, start=Start.OFFSET,
             partition=record.partition(), offset=record.offset())),
        Cell("Who was sent this record", here("/receipts", topic=wanted.topic, partition=record.partition(),
             offset=record.offset())),
        Cell("Operations on this topic", here("/audit/records", topic=wanted.topic)),
        *(Cell(f"Bytes in {each}", f"{place}&as={each}") for each in (HEX, BASE64) if each != form),
    ]  # fmt: skip
    return Page(title, parts, links=links)


async def whole(ask: Ask) -> File:
    """The bytes of a key or a value as they are, to be saved: no browser shows them as a page of this console."""
    wanted, part = _wanted(ask), ask.said("part") or "value"
    record, _ = await _the_record(ask, wanted)
    data = record.key() if part == "key" else record.value()
    return File(
        f"{wanted.topic}-{record.partition()}-{record.offset()}.{part if part == 'key' else 'value'}", data or b""
    )


async def tail(ask: Ask) -> Page:
    wanted = _wanted(ask)
    fields = (
        Field("topic", "Topic", value=wanted.topic, required=True),
        Field("partition", "Partition", value=ask.said("partition")),
        Field("filter", "Filter in CEL", value=wanted.filter),
    )
    form = search("/records/tail", "Follow", *fields, title="Follow")
    if not wanted.topic or ask.records.why_not:
        why = ask.records.why_not
        return not_shown(ask, "Follow records", form, why) if why else Page("Follow records", [form], lead=LEAD)
    await _may_look(ask, wanted.topic)
    rate = ask.records.settings.tail_records_per_s
    stream = Stream(
        "Records as they come", COLUMNS, here("/live/records", **_same(wanted)), f"At most {rate} records a second."
    )
    links = [Cell("Stop following", here("/records", **_same(wanted)))]
    return Page(f"Following {wanted.topic}", [form, stream], lead=LEAD, links=links)


async def turns(ask: Ask, goes_on: Callable[[], bool]) -> AsyncGenerator[tuple[list[Cells], str], None]:
    """Rows of a tail, the newest first, and what the viewer has to know. CallError."""
    wanted = _wanted(ask)
    await _may_look(ask, wanted.topic)
    async with contextlib.aclosing(ask.records.tail(wanted, goes_on=goes_on)) as found:
        async for turn in found:
            yield [_row(ask, wanted, record, turn.contents) for record in reversed(turn.records)], _told(turn)


def _wanted(ask: Ask) -> Wanted:
    """CallError: a field is wrong."""
    start = ask.said("start") or Start.NEWEST
    if start not in set(Start):
        raise wrong("start", f"{start!r} is none of {', '.join(CHOICES)}")
    partition = ask.number("partition") if ask.said("partition") else None
    if start == Start.OFFSET and partition is None:
        raise wrong("partition", "an offset is that of a partition, and none is named")
    time = time_of(ask, "time")
    if start == Start.TIME and time is None:
        raise wrong("time", "none is named; expected 2026-11-28T20:00")
    most = ask.records.settings.records_page
    try:
        positions = positions_of(ask.said("at"))
    except ValueError:
        raise wrong("at", "this is no position of a page") from None
    return Wanted(
        ask.said("topic"),
        Start(start),
        partition,
        ask.number("offset"),
        0 if time is None else time.ToMilliseconds(),
        positions,
        min(ask.number("most") or most, most),
        ask.said("filter"),
        committed=not ask.said("uncommitted"),
    )


def _form(ask: Ask, wanted: Wanted) -> Form:
    start = wanted.start if wanted.start in CHOICES else Start.NEWEST
    return search(
        "/records",
        "Show",
        Field("topic", "Topic", value=wanted.topic, required=True),
        choice("start", "From", start, *CHOICES),
        Field("partition", "Partition", value=ask.said("partition"), help="Empty: all."),
        Field("offset", "Offset", value=ask.said("offset")),
        Field("time", "Time (UTC)", Control.TIME, ask.said("time")),
        Field("filter", "Filter in CEL", value=wanted.filter, help="For example value.count > 2 && key == 'a'"),
        Field("most", "Records", value=str(wanted.most)),
        tick("uncommitted", "Also of open and aborted transactions", "" if wanted.committed else "1"),
        title="Look at records",
    )  # fmt: skip


async def _may_look(ask: Ask, topic: str) -> None:
    """A gateway that can't tell viewers apart can't refuse one. So control says who may look. CallError."""
    if not ask.records.by_token:
        await ask.caller.call(ask.caller.stubs.decisions.Explain, admin.ExplainRequest(topic=topic))


async def read_as_viewer(ask: Ask, wanted: Wanted) -> Found:
    if ask.records.why_not is None:
        await _may_look(ask, wanted.topic)
    return await ask.records.read(wanted)


async def _the_record(ask: Ask, wanted: Wanted) -> tuple[Record, Contents]:
    if wanted.partition is None or not wanted.topic:
        raise wrong("partition", "a record has a topic, a partition and an offset")
    only = Wanted(
        wanted.topic, Start.OFFSET, wanted.partition, wanted.offset, most=1, committed=wanted.committed
    )  # fmt: skip
    found = await read_as_viewer(ask, only)
    if not found.records or found.records[0].offset() != wanted.offset:
        text = (
            f"Offset {wanted.offset:,} of partition {wanted.partition} has no record: a transaction has ended there, "
        )
        text += "or the record was compacted away."
        raise CallError(Ending.ABSENT, "NO_RECORD", text, by=CONSOLE)
    record = found.records[0]
    return record, found.contents.get((record.partition(), record.offset()), NAMELESS)


def not_shown(ask: Ask, title: str, form: Form | None, failure: CallError) -> Page:
    """The form stays, so that a viewer can correct it. Refusals of control have pages of their own."""
    if (
        failure.by == CONTROL
        and failure.code in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        and ask.records.why_not is None
    ):
        raise failure
    parts: list[Part] = [*([form] if form else []), said_why(ask, failure)]
    status = 200 if failure.code == "NO_GATEWAY" else STATUS[failure.ending]
    return Page(title, parts, lead=LEAD, status=status)


def said_why(ask: Ask, failure: CallError) -> Notice:
    items: list[str | Cell] = list(failure.details)
    if failure.ending is Ending.LOGIN_NEEDED:
        items.append(log_in(ask))
    return Notice(str(failure), Tone.WARNING if failure.code == "NO_GATEWAY" else Tone.BAD, items)


def log_in(ask: Ask) -> Cell:
    return Cell("Log in", here("/login", next=here(ask.path, **ask.query)))


def _notices(found: Found) -> list[Part]:
    parts: list[Part] = []
    if found.bound:
        text = f"The look ended early: {found.bound}. Go on with the button below the records, or name a partition."
        parts.append(Notice(text, Tone.WARNING))
    if found.undecided:
        text = f"The filter can't judge {words.count(found.undecided, 'record')}, which the page leaves out."
        parts.append(Notice(text, Tone.WARNING, [found.why]))
    if undecoded := _undecoded(found.contents):
        parts.append(Notice("Some keys or values are not decoded.", Tone.WARNING, [undecoded]))
    return parts


def _table(ask: Ask, wanted: Wanted, found: Found) -> Table:
    rows = [_row(ask, wanted, record, found.contents) for record in found.records]
    backward = wanted.start in NEWEST_FIRST
    more = ""
    if found.on:
        start = Start.BEFORE if backward else Start.AFTER
        more = here("/records", **_same(wanted), start=start, at=positions_text(found.on))
    empty = "No record that fits was found." if wanted.filter else "There is no record here."
    order = "the newest first" if backward else "the oldest first"
    note = f"{words.count(len(rows), 'record')} of {found.scanned:,} that were read; {order}."
    return Table("Records", COLUMNS, rows, empty, note, more)


def _ends(found: Found) -> Table:
    rows: list[Cells] = [[f"{each}", f"{first:,}", f"{end:,}"] for each, (first, end) in sorted(found.ends.items())]
    return Table("Offsets", ("Partition", "First", "End"), rows, "The topic has no partitions.")


def _row(ask: Ask, wanted: Wanted, record: Record, contents: Places) -> Cells:
    most = ask.records.settings.record_bytes
    headers = record.headers() or []
    named = [f"{shown(name.encode(), most).text}: {_short(shown(data, most // 2))}" for name, data in headers]
    if len(named) > MOST_HEADERS:
        named = [*named[:MOST_HEADERS], f"and {len(named) - MOST_HEADERS:,} more"]
    place = _place(wanted, record.partition(), record.offset())
    key, value = contents.get((record.partition(), record.offset()), NAMELESS)
    return [
        Cell(f"{record.partition()}/{record.offset()}", place),
        time_text(record),
        _short(shown(record.key(), most // 2, decoded=key and key.on_one_line)),
        "; ".join(named) or words.NONE,
        _short(shown(record.value(), most, decoded=value and value.on_one_line)),
    ]


def _short(of: Shown) -> str:
    """The text, with what it is if it is no text."""
    cut = f" ... ({words.size(of.size)})" if of.is_cut else ""
    label = "" if of.kind in (TEXT, JSON) and of.schema is None else f" ({of.label})"
    return f"{of.text}{cut}{label}".strip()


def time_text(record: Record) -> str:
    kind, milliseconds = record.timestamp()
    if kind == 0 or milliseconds < 0:
        return words.NONE
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03} UTC"


def _same(wanted: Wanted) -> dict[str, str | int]:
    """The fields that all pages of one look share."""
    return {
        "topic": wanted.topic,
        "partition": "" if wanted.partition is None else wanted.partition,
        "filter": wanted.filter,
        "most": wanted.most,
        "uncommitted": "" if wanted.committed else 1,
    }


def _place(wanted: Wanted, partition: int, offset: int) -> str:
    uncommitted = "" if wanted.committed else 1
    return here("/records/one", topic=wanted.topic, partition=partition, offset=offset, uncommitted=uncommitted)


def _file(place: str) -> str:
    return place.replace("/records/one", "/records/whole", 1)


def _curl(ask: Ask, record: Record) -> Part:
    line = as_curl(record, ask.records.settings.sidecar_url)
    if not line:
        return Notice(f"A record of more than {words.size(MOST)} has no curl line: save its value, and send the file.")
    where = "" if ask.records.settings.sidecar_url else f"Set {ANY_SIDECAR} to the address of a sidecar. "
    return Block("Write it again by a sidecar", line, f"{where}The sidecar writes by its own rights, not by yours.")


def _undecoded(contents: Places) -> str:
    """Why the first key or value that names a schema is not decoded; empty if all are."""
    return next((each.why for pair in contents.values() for each in pair if each is not None and each.why), "")


def _told(turn: Turn) -> str:
    if turn.passed:
        return f"Records come faster than this page shows them: {turn.passed:,} offsets were passed over."
    if turn.why:
        return f"The filter can't judge some records: {turn.why}"
    undecoded = _undecoded(turn.contents)
    return f"Some keys or values are not decoded: {undecoded}" if undecoded else ""
