"""Replays: the list, one with its progress, and its end."""

from __future__ import annotations

from mesh.rpc import replays
from mesh.wording import short, word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here, search, tick
from services.console.parts import Cell, Cells, Facts, Moved, Page, Part, Table, Tone

OPEN = (replays.REPLAY_STATE_PENDING, replays.REPLAY_STATE_RUNNING)
MOST_PARTITIONS = 200


def progress(of: replays.Replay) -> Cell:
    """How far it is, by offsets."""
    if not of.HasField("totals"):
        return Cell("its plan is not known yet", tone=Tone.QUIET)
    totals = of.totals
    text = f"{totals.offsets_done:,} of {totals.offsets:,} offsets"
    return Cell(text, done=totals.offsets_done / totals.offsets if totals.offsets else 1.0)


async def listing(ask: Ask) -> Page:
    open_only = ask.said("open")
    request = replays.ListReplaysRequest(page_size=PAGE_SIZE, page_token=ask.page_token, open_only=bool(open_only))
    answer = await ask.caller.call(ask.caller.stubs.replays.ListReplays, request)
    rows: list[Cells] = [
        [
            Cell(short(each.name), f"/replays/{short(each.name)}"),
            each.spec.WhichOneof("destination") or words.NONE,
            words.toned(word(replays.ReplayState, each.state)),
            progress(each),
            words.moment(each.create_time),
            each.actor,
        ]
        for each in answer.replays
    ]
    columns = ("Replay", "To", "State", "How far", "Started", "By")
    table = Table("Replays", columns, rows, "There is no replay.", more=ask.more(answer.next_page_token))
    return Page(
        "Replays", [search("/replays", "Show", tick("open", "Only open ones", open_only)), table], live="replays"
    )


async def one(ask: Ask) -> Page:
    name = ask.parameters["name"]
    request = replays.GetReplayRequest(name=f"replays/{name}")
    found = await ask.caller.call(ask.caller.stubs.replays.GetReplay, request)
    totals = found.totals
    facts = Facts(
        "Replay",
        [
            ("State", words.toned(word(replays.ReplayState, found.state))),
            ("How far", progress(found)),
            ("Records acknowledged", f"{totals.records:,}"),
            ("Records failed", f"{totals.failed:,}"),
            ("Carried out by", found.member or words.NONE),
            ("What it says", found.description or words.NONE),
            ("Started", f"{words.moment(found.create_time)} by {found.actor}"),
            ("Ended", words.moment(found.end_time)),
            ("Why", found.reason or words.NONE),
            ("Destination", _destination(found.spec)),
        ],
    )
    rows: list[Cells] = [
        [each.topic, each.partition, f"{each.start_offset:,}", f"{each.position:,}", f"{each.end_offset:,}"]
        for each in found.partitions[:MOST_PARTITIONS]
    ]
    left = len(found.partitions) - len(rows)
    note = f"{left} more partitions are not shown." if left else ""
    links: list[Cell] = []
    if found.spec.HasField("group") and found.state not in OPEN and ask.may_change:
        undo = here("/resets/check", group=found.spec.group.group, undoes=name)
        if any(each.committed_before >= 0 for each in found.partitions):
            links.append(Cell("Undo this reset", undo))
    parts: list[Part] = [
        facts,
        Table("Partitions", ("Topic", "Partition", "From", "Next", "To"), rows, "No partition is known.", note),
    ]
    if found.state in OPEN and not found.cancelling and ask.may_change:
        parts.append(change("Cancel it", f"/replays/{name}/cancel", "Cancel the replay", tone=Tone.BAD))
    return Page(f"Replay {name}", parts, links=links, live=f"replay/{name}" if found.state in OPEN else "")


def _destination(of: replays.ReplaySpec) -> Cell:
    if of.HasField("group"):
        return Cell(f"group {of.group.group}", here(f"/groups/{of.group.group}"))
    return Cell(of.WhichOneof("destination") or words.NONE)


async def cancel(ask: Ask) -> Moved:
    name = ask.parameters["name"]
    request = replays.CancelReplayRequest(
        name=f"replays/{name}", reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.replays.CancelReplay, request)
    return Moved(f"/replays/{name}")
