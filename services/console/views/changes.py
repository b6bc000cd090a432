"""A decision as it lands on each member, and the way back from a change of rules."""

from __future__ import annotations

from mesh.rpc import admin
from mesh.wording import actor_text, short
from services.console import words
from services.console.asking import Ask, change, here
from services.console.parts import Cell, Facts, Item, Moved, Notice, Page, Part, Table, Tone, hidden
from services.console.views.overview import state
from services.console.views.past import difference_tables
from services.console.views.rules import CHANGE_TIMEOUT_S, consents, options_of
from services.console.views.taking_back import event_of, revision_of, way_back


async def landing(ask: Ask) -> Page:
    """A change of the rules, as it lands on each member."""
    revision = revision_of(ask)
    stubs = ask.caller.stubs
    status = await ask.caller.call(stubs.decisions.GetStatus, admin.GetStatusRequest())
    entry = await _entry(ask, revision)
    outcome = entry.outcome if entry is not None else ""
    rows = [_landed(each, revision) for each in status.members if each.kind != admin.MEMBER_KIND_SIDECAR]
    facts: list[Item] = [
        ("In force", f"{status.revision:,}"),
        ("Outcome", words.toned(outcome) if outcome else "no rollout was needed, or none is known"),
    ]
    parts: list[Part] = []
    if entry is not None:
        facts += [("By", f"{actor_text(entry)}, {words.moment(entry.time)}"), ("Why", entry.reason or words.NONE)]
        parts.append(Table("What changed", ("Change",), [[each] for each in entry.changes], "Nothing."))
    parts.insert(0, Facts(f"Revision {revision:,}", facts))
    parts.append(
        Table("Members", ("Member", "This revision", "State", "Runs revision"), rows, "No gateway or router is known.")
    )
    before = ask.number("before") or revision - 1
    links = []
    if ask.may_change:
        event = await event_of(ask, revision)
        if event is not None and event.HasField("rule_set_changed"):
            links.append(Cell("Undo this change", here(f"/changes/{revision}/undo", before=before)))
        elif back := way_back(event, revision):
            links.append(Cell("Take this change back", back))
    return Page(f"Change {revision:,}", parts, links=links, live="status")


def _landed(member: admin.Member, revision: int) -> list[Cell | str]:
    landed = member.revision >= revision and member.phase in (
        admin.MEMBER_PHASE_APPLIED,
        admin.MEMBER_PHASE_UNSPECIFIED,
    )
    text = Cell("landed", tone=Tone.GOOD) if landed else Cell("not yet", tone=Tone.WARNING)
    return [short(member.name), text, state(member), f"{member.revision:,}"]


async def _entry(ask: Ask, revision: int) -> admin.HistoryEntry | None:
    """The decision in the history, if it is among the last thousand."""
    request = admin.ListHistoryRequest(page_size=1000)
    answer = await ask.caller.call(ask.caller.stubs.decisions.ListHistory, request)
    return next((each for each in answer.entries if each.revision == revision), None)


async def undo(ask: Ask) -> Page:
    """The changes if the earlier rules came back."""
    revision, before = revision_of(ask), ask.number("before")
    request = admin.DiffRequest(from_revision=revision, to_revision=before)
    answer = await ask.caller.call(ask.caller.stubs.decisions.Diff, request)
    rules = await ask.caller.call(ask.caller.stubs.rules.ListRules, admin.ListRulesRequest(page_size=1))
    parts: list[Part] = []
    if rules.revision != revision:
        text = f"The rules have changed since: revision {rules.revision:,} is the last one. Those changes go, too."
        parts.append(Notice(text, Tone.WARNING))
    parts += difference_tables(answer)
    parts.append(
        change(
            "Confirm", f"/changes/{revision}/undo", "Bring these rules back", hidden("before", before),
            hidden("expected_revision", rules.revision), *consents(ask),
        )
    )  # fmt: skip
    return Page(
        f"Undo change {revision:,}", parts, lead=f"The rules of revision {before:,} come back, as a new change."
    )


async def undone(ask: Ask) -> Moved:
    request = admin.RevertRequest(revision=ask.number("before"), options=options_of(ask))
    answer = await ask.caller.call(ask.caller.stubs.rules.Revert, request, timeout_s=CHANGE_TIMEOUT_S)
    return Moved(here(f"/changes/{answer.revision}", before=ask.said("expected_revision")))
