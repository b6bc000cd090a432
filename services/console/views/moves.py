"""Moves of topics with their records: the list, one with its progress; begin with a plan, cancel, undo."""

from __future__ import annotations

import asyncio

from mesh import durations
from mesh.rpc import admin, drains, topic_moves, topics
from mesh.wording import origin_of, short, word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here, wrong
from services.console.parts import Cell, Cells, Facts, Field, Form, Item, Moved, Notice, Page, Part, Table, Tone, hidden
from services.console.views import drains as drains_view
from services.console.views.rules import cluster_field

OPEN = (
    topic_moves.TOPIC_MOVE_STATE_COPYING, topic_moves.TOPIC_MOVE_STATE_CUTTING, topic_moves.TOPIC_MOVE_STATE_WAITING
)  # fmt: skip
DONE = topic_moves.TOPIC_MOVE_STATE_DONE
STITCH = topic_moves.TOPIC_MOVE_KIND_STITCH
FIELDS = ("topic", "target_cluster", "rate", "budget", "stitch")
MOST_READERS = 200
START_TIMEOUT_S = 60.0
"""Control asks both clusters, and creates the topic."""


def state(of: topic_moves.MoveWithRecords) -> Cell:
    return words.toned(word(topic_moves.TopicMoveState, of.state))


def progress(of: topic_moves.MoveWithRecords) -> Cell:
    """How far its copy is, as its router said last."""
    if of.state not in OPEN:
        waited = durations.whole_ms(of.pause)
        return Cell(f"producers waited {waited:,} ms" if waited else words.NONE)
    if of.spec.kind == STITCH:
        return Cell("nothing is copied", tone=Tone.QUIET)
    if not of.HasField("progress"):
        return Cell("no router has reported yet", tone=Tone.QUIET)
    written, behind = of.progress.records_written, of.progress.lag
    whole = written + behind
    return Cell(f"{words.count(behind, 'record')} behind", done=written / whole if whole else 1.0)


def move_row(of: topic_moves.MoveWithRecords) -> Cells:
    name = short(of.name)
    return [
        Cell(name, f"/moves/{name}"), Cell(of.spec.topic, f"/topics/{of.spec.topic}"), origin_of(of),
        of.copy.target_cluster, state(of), progress(of), words.moment(of.create_time), of.actor,
    ]  # fmt: skip


async def listing(ask: Ask) -> Page:
    request = topic_moves.ListTopicMovesRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    stubs = ask.caller.stubs
    answer, drained = await asyncio.gather(
        ask.caller.call(stubs.topic_moves.ListTopicMoves, request),
        ask.caller.call(stubs.drains.ListDrains, drains.ListDrainsRequest(page_size=PAGE_SIZE)),
    )
    table = Table(
        "Moves", ("Move", "Topic", "From", "To", "State", "How far", "Began", "By"),
        [move_row(each) for each in answer.topic_moves], "No topic moves, or has moved, with its records.",
        more=ask.more(answer.next_page_token),
    )  # fmt: skip
    parts: list[Part] = [table]
    if drained.drains:
        columns = ("Drain", "From", "To", "State", "How far", "Began", "By", "Note")
        parts.append(Table("Drains of clusters", columns, list(map(drains_view.row, drained.drains)), ""))
    if ask.may_change:
        parts += [await move_form(ask, ""), await drains_view.form(ask)]
    lead = "A router copies the topic. When the copy has caught up, gateways hold the topic for a moment, and switch."
    return Page("Moves with records", parts, lead=lead, live="moves")


async def move_form(ask: Ask, topic: str) -> Form:
    """The form that leads to the plan of a move."""
    named = hidden("topic", topic) if topic else Field("topic", "Topic", required=True)
    return Form(
        "Move it with its records" if topic else "Move a topic",
        "/moves/check",
        "Show the plan",
        (
            named,
            await cluster_field(ask, ""),
            Field("rate", "Bytes a second, at most", help="Empty: no bound."),
            Field("budget", "Milliseconds that producers may wait", help="Empty: 1,000."),
        ),
    )


def readers(of: topics.GetTopicResponse, title: str = "Groups that read it") -> Table:
    """The groups that read a topic."""
    rows: list[Cells] = [
        [
            Cell(each.group, here(f"/groups/{each.group}")), f"{each.partitions:,}",
            f"{each.lag:,}" if each.HasField("lag") else words.NONE,
        ]
        for each in of.readers[:MOST_READERS]
    ]  # fmt: skip
    left = len(of.readers) - len(rows)
    note = f"{left:,} more groups are not shown." if left else ""
    empty = "No group reads it." if of.topic.HasField("groups") else "Its groups are not known."
    return Table(title, ("Group", "Partitions", "Records behind"), rows, empty, note)


async def _get(ask: Ask) -> topic_moves.MoveWithRecords:
    request = topic_moves.GetTopicMoveRequest(name=f"topicmoves/{ask.parameters['move']}")
    found: topic_moves.MoveWithRecords = await ask.caller.call(ask.caller.stubs.topic_moves.GetTopicMove, request)
    return found


async def one(ask: Ask) -> Page:
    found = await _get(ask)
    name = short(found.name)
    facts: list[Item] = [
        ("State", state(found)),
        ("Topic", Cell(found.spec.topic, f"/topics/{found.spec.topic}")),
        ("From", origin_of(found)),
        ("To", found.copy.target_cluster),
        ("How far", progress(found)),
        ("Records copied", f"{found.progress.records_written:,}" if found.HasField("progress") else words.NONE),
        ("Router", short(found.progress.router) or words.NONE),
        ("Cuts given up", f"{found.cuts_given_up:,}"),
        (
            "Revision of the switch",
            Cell(f"{found.revision:,}", f"/changes/{found.revision}") if found.revision else "-",
        ),
        ("Began", f"{words.moment(found.create_time)} by {found.actor}"),
        ("Ended", words.moment(found.end_time)),
        ("Why", found.reason or words.NONE),
    ]
    parts: list[Part] = [Notice(each, Tone.BAD) for each in (found.problem, found.progress.problem) if each]
    parts.append(Facts("Move", facts))
    if found.cuts:
        rows: list[Cells] = [[each.partition, f"{each.start:,}", f"{each.end:,}"] for each in found.cuts]
        parts.append(Table("Where it cut", ("Partition", "First offset", "Cut at"), rows, ""))
    links: list[Cell] = []
    if ask.may_change and found.state in OPEN:
        parts.append(change("Cancel it", f"/moves/{name}/cancel", "Cancel the move", tone=Tone.BAD))
    if ask.may_change and found.state == DONE:
        stitch = "yes" if found.spec.kind == STITCH else ""
        target = origin_of(found)
        back = here("/moves/check", topic=found.spec.topic, target_cluster=target, stitch=stitch, undoes=name)
        links.append(Cell("Undo this move", back))
    live = f"move/{name}" if found.state in OPEN else ""
    return Page(f"Move {name}", parts, links=links, live=live)


def _spec(ask: Ask) -> topic_moves.TopicMoveSpec:
    topic, target = ask.said("topic"), ask.said("target_cluster")
    for name, value in (("topic", topic), ("target_cluster", target)):
        if not value:
            raise wrong(name, "is missing")
    budget = ask.number("budget")
    if budget >= 2**31:
        raise wrong("budget", f"{budget} is too large")
    return topic_moves.TopicMoveSpec(
        topic=topic, target_cluster=target, bytes_per_second=ask.number("rate"), hold_budget=durations.of_ms(budget),
        kind=STITCH if ask.said("stitch") else topic_moves.TOPIC_MOVE_KIND_COPY,
    )  # fmt: skip


async def check(ask: Ask) -> Page:
    """The plan: what would be copied, and which groups go along. Control checks the rest when the move begins."""
    spec = _spec(ask)
    stubs = ask.caller.stubs
    found, explanation = await asyncio.gather(
        ask.caller.call(stubs.topics.GetTopic, topics.GetTopicRequest(name=f"topics/{spec.topic}")),
        ask.caller.call(stubs.decisions.Explain, admin.ExplainRequest(topic=spec.topic)),
    )
    records = sum(each.end - each.start for each in explanation.live_partitions if each.start >= 0)
    complete = len(explanation.live_partitions) == found.topic.partitions
    to_copy = f"{records:,}{'' if complete else ', of the partitions whose offsets are known'}"
    facts: list[Item] = [
        ("Topic", Cell(spec.topic, f"/topics/{spec.topic}")),
        ("From", found.topic.cluster),
        ("To", spec.target_cluster),
        ("Partitions", f"{found.topic.partitions:,}"),
        ("Offsets to copy", "none: old records stay" if spec.kind == STITCH else to_copy),
        ("Bytes a second, at most", words.size(spec.bytes_per_second) if spec.bytes_per_second else "no bound"),
        ("Producers may wait", f"{durations.whole_ms(spec.hold_budget) or 1000:,} ms"),
    ]
    parts: list[Part] = [Notice(each, Tone.WARNING) for each in (*found.problems, *explanation.notes)]
    if found.topic.cluster == spec.target_cluster:
        parts.append(Notice(f"The topic is on {spec.target_cluster} already.", Tone.WARNING))
    if undoes := ask.said("undoes"):
        copied = "nothing is copied" if spec.kind == STITCH else "only records that are newer than its cut are copied"
        text = f"This undoes move {undoes}: {copied}."
        parts.append(Notice(text))
    parts += [Facts("Plan", facts), readers(found, "Groups that go along")]
    if ask.may_change:
        fields = [hidden(name, ask.said(name)) for name in FIELDS if ask.said(name)]
        parts.append(change("Confirm", "/moves/start", "Begin the move", *fields))
    return Page(f"Plan: move {spec.topic} to {spec.target_cluster}", parts, lead="Nothing has changed yet.")


async def start(ask: Ask) -> Moved:
    request = topic_moves.StartTopicMoveRequest(
        spec=_spec(ask), reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    made = await ask.caller.call(ask.caller.stubs.topic_moves.StartTopicMove, request, timeout_s=START_TIMEOUT_S)
    return Moved(f"/moves/{short(made.name)}")


async def cancel(ask: Ask) -> Moved:
    name = ask.parameters["move"]
    request = topic_moves.CancelTopicMoveRequest(
        name=f"topicmoves/{name}", reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.topic_moves.CancelTopicMove, request)
    return Moved(f"/moves/{name}")
