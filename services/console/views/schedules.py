"""Changes that are still to come, and the freeze."""

from __future__ import annotations

import asyncio

from mesh import durations
from mesh.rpc import admin
from mesh.wording import command_text, short
from services.console import words
from services.console.asking import Ask, change
from services.console.parts import Cell, Cells, Facts, Moved, Notice, Page, Part, Table, Tone

MOST_PENDING = 1000
"""Control takes no more."""


async def listing(ask: Ask) -> Page:
    stubs = ask.caller.stubs
    status, answer = await asyncio.gather(
        ask.caller.call(stubs.decisions.GetStatus, admin.GetStatusRequest()),
        ask.caller.call(
            stubs.changes.ListScheduledChanges, admin.ListScheduledChangesRequest(page_token=ask.page_token)
        ),
    )
    rows: list[Cells] = [
        [
            Cell(short(each.name), f"/schedules/{short(each.name)}"),
            words.moment(each.time),
            command_text(each.command),
            each.actor,
            each.reason or words.NONE,
        ]
        for each in answer.scheduled_changes
    ]
    frozen = status.frozen if status.HasField("frozen") else None
    parts: list[Part] = []
    if frozen is None:
        parts.append(Notice("Control takes changes.", Tone.GOOD))
    else:
        why = f": {frozen.reason}" if frozen.reason else ""
        parts.append(Notice(f"{frozen.actor} froze the mesh at {words.moment(frozen.time)}{why}", Tone.WARNING))
    columns = ("Change", "When", "What", "By", "Why")
    more = ask.more(answer.next_page_token)
    parts.append(Table("Scheduled changes", columns, rows, "No change is scheduled.", more=more))
    if ask.may_change:
        if frozen is None:
            parts.append(change("Freeze the mesh", "/freeze", "Refuse changes from now on", tone=Tone.BAD))
        else:
            parts.append(change("Thaw the mesh", "/thaw", "Take changes again"))
    return Page("Scheduled changes and freeze", parts, live="status")


async def one(ask: Ask) -> Page:
    name = ask.parameters["name"]
    request = admin.ListScheduledChangesRequest(page_size=MOST_PENDING)
    answer = await ask.caller.call(ask.caller.stubs.changes.ListScheduledChanges, request)
    found = next((each for each in answer.scheduled_changes if each.name == f"schedules/{name}"), None)
    if found is None:
        text = "The change is not scheduled any more: it was made, refused, missed or cancelled."
        return Page(f"Scheduled change {name}", [Notice(text)], links=[Cell("History", "/history")], status=404)
    facts = Facts(
        "Scheduled change",
        [
            ("When", words.moment(found.time)),
            ("What", command_text(found.command)),
            ("May be late by", words.count(durations.whole_s(found.may_be_late), "second")),
            ("By", found.actor),
            ("Why", found.reason or words.NONE),
        ],
    )
    parts: list[Part] = [facts]
    if ask.may_change:
        parts.append(change("Cancel it", f"/schedules/{name}/cancel", "Cancel the change", tone=Tone.BAD))
    return Page(f"Scheduled change {name}", parts)


async def cancel(ask: Ask) -> Moved:
    request = admin.CancelScheduledChangeRequest(
        name=f"schedules/{ask.parameters['name']}", reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.changes.CancelScheduledChange, request)
    return Moved("/schedules")


async def freeze(ask: Ask) -> Moved:
    request = admin.FreezeRequest(reason=ask.said("reason"), request_id=ask.said("request_id"))
    await ask.caller.call(ask.caller.stubs.changes.Freeze, request)
    return Moved("/schedules")


async def thaw(ask: Ask) -> Moved:
    request = admin.ThawRequest(reason=ask.said("reason"), request_id=ask.said("request_id"))
    await ask.caller.call(ask.caller.stubs.changes.Thaw, request)
    return Moved("/schedules")
