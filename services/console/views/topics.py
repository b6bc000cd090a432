"""Topics of all clusters: a list in pages, and a page for each: why it lives there, who reads it, where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mesh.rpc import admin, profiles, topic_moves, topics
from mesh.wording import actor_text, short
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, choice, here, search, wrong
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Facts, Field, Form, Item, Moved, Notice, Page, Part, Table, Tone
from services.console.views.lineage import of_topic as lineage_of
from services.console.views.moves import OPEN as MOVING
from services.console.views.moves import move_form, move_row, readers
from services.console.views.rules import explained
from services.console.views.stitches import parts_of
from services.console.views.traffic import bytes_by_topic, clients_of

ORDERS = {
    "name": topics.TOPIC_ORDER_NAME,
    "cluster": topics.TOPIC_ORDER_CLUSTER,
    "partitions": topics.TOPIC_ORDER_PARTITIONS,
}
WITH, WITHOUT = "yes", "no"
DECISIONS = 20


async def listing(ask: Ask) -> Page:
    said = {name: ask.said(name) for name in ("prefix", "part", "cluster", "owner")}
    order, groups = ask.said("order") or "name", ask.said("groups") or WITH
    if order not in ORDERS:
        raise wrong("order", f"{order!r} is none of {', '.join(ORDERS)}")
    request = topics.ListTopicsRequest(
        **said, order=ORDERS[order], groups=groups == WITH, sizes=True, page_size=PAGE_SIZE, page_token=ask.page_token
    )
    stubs = ask.caller.stubs
    answer, amounts = await asyncio.gather(ask.caller.call(stubs.topics.ListTopics, request), bytes_by_topic(ask))
    rows = [_row(each, amounts, with_groups=groups == WITH) for each in answer.topics]
    counted = ("Groups", "Records behind") if groups == WITH else ()
    hour = () if amounts is None else ("Bytes in the last hour",)
    columns = ("Topic", "Cluster", "Name there", "Partitions", "Size", "Rule", "Owner", *counted, *hour)
    shown = f"{len(rows):,} of {words.count(answer.total, 'topic')}, by the rules of revision {answer.revision:,}."
    table = Table("Topics", columns, rows, "There is no such topic.", shown, ask.more(answer.next_page_token))
    form = search(
        "/topics",
        "Show",
        Field("part", "Name has", value=said["part"]),
        Field("prefix", "Name begins with", value=said["prefix"]),
        Field("cluster", "Cluster", value=said["cluster"]),
        Field("owner", "Owner", value=said["owner"]),
        choice("order", "Order", order, *ORDERS),
        choice("groups", "Groups and lag", groups, WITH, WITHOUT),
        title="Filter",
    )
    parts: list[Part] = [form, *not_known(answer.problems), table]
    if answer.unreached:
        parts.append(Notice(_unreached(answer.unreached)))
    return Page("Topics", parts, lead="The topics of all clusters, by the names that clients know.")


def _unreached(number: int) -> str:
    return (
        f"{words.count(number, 'more topic')} on the clusters: no rule leads there. "
        "A copy that a move left behind is one, and so is a shadow topic."
    )


def not_known(problems: Sequence[str]) -> list[Part]:
    """Clusters that do not answer: their part is missing on the page."""
    return [Notice("This page is not complete", Tone.WARNING, list(problems))] if problems else []


def owner_cell(owner: str) -> Cell | str:
    """Leads to all topics of the owner."""
    return Cell(owner, here("/topics", owner=owner)) if owner else words.NONE


def _row(of: topics.Topic, amounts: dict[str, int] | None, *, with_groups: bool) -> Cells:
    name = short(of.name)
    row: list[Cell | str | int] = [
        Cell(name, f"/topics/{name}"),
        of.cluster,
        of.upstream_topic if of.upstream_topic != name else "the same",
        f"{of.partitions:,}",
        words.size(of.size_bytes) if of.HasField("size_bytes") else words.NONE,
        Cell(short(of.rule), f"/{of.rule}"),
        owner_cell(of.owner),
    ]
    if with_groups:
        row += [
            f"{of.groups:,}" if of.HasField("groups") else words.NONE,
            f"{of.lag:,}" if of.HasField("lag") else words.NONE,
        ]
    if amounts is not None:
        row.append(words.size(amounts[name]) if name in amounts else words.NONE)
    return row


async def one(ask: Ask) -> Page:
    """Each figure is of its own call: what one cluster does not say is missing, and the page says so."""
    name = ask.parameters["topic"]
    stubs = ask.caller.stubs
    explanation, found, clients, past, moves, log, profile, ways = await asyncio.gather(
        ask.caller.call(stubs.decisions.Explain, admin.ExplainRequest(topic=name)),
        _found(ask, name),
        clients_of(ask, name),
        _past(ask, name),
        _moves(ask, name),
        parts_of(ask, name),
        _profile(ask, name),
        lineage_of(ask, name),
    )
    parts: list[Part] = []
    lead = ""
    if isinstance(found, CallError):
        parts.append(Notice(str(found), Tone.WARNING))
    else:
        parts += not_known(found.problems)
    parts += [*moves, *explained(explanation), *log]
    if not isinstance(found, CallError):
        parts += [_owner(found.topic), readers(found)]
    parts += [clients, *ways, *profile]
    if not isinstance(found, CallError):
        parts.append(_settings(found.settings))
        if found.topic.HasField("size_bytes"):
            lead = f"{words.size(found.topic.size_bytes)} on disk, without the copies of other replicas."
    parts.append(past)
    links = [
        Cell("Try it for a client", here("/explain", about="topic", name=name)),
        Cell("Its records", here("/records", topic=name)),
        Cell("Its lineage", here("/lineage", topic=name)),
        Cell("Its history", here("/history", topic=name)),
        Cell("Its forks", here("/forks", of=name)),
    ]
    if ask.may_change and not isinstance(found, CallError):
        parts += [*await _move_form(ask, name), _owner_form(name, found.topic.owner)]
        links.append(Cell("Reset a group", here("/resets/new", topic=name)))
    return Page(f"Topic {name}", parts, lead=lead, links=links)


async def _move_form(ask: Ask, name: str) -> list[Part]:
    """None for a viewer whose grant does not reach the list of clusters."""
    try:
        return [await move_form(ask, name)]
    except CallError:
        return []


def _owner(of: topics.Topic) -> Facts:
    name = short(of.name)
    past = Cell("its decisions", here("/history", name=f"topicowners/{name}"))
    return Facts("Owner", [("Owner", owner_cell(of.owner)), ("History", past)])


def _owner_form(name: str, owner: str) -> Form:
    field = Field("owner", "Owner", value=owner, help="A team or a person; empty: nobody.")
    return change("Set its owner", f"/topics/{name}/owner", "Set the owner", field)


async def own(ask: Ask) -> Moved:
    """Sets or removes the owner of a topic."""
    name = ask.parameters["topic"]
    request = topics.SetTopicOwnerRequest(
        name=f"topics/{name}", owner=ask.form.get("owner", "").strip(), reason=ask.said("reason"),
        request_id=ask.said("request_id"),
    )  # fmt: skip
    await ask.caller.call(ask.caller.stubs.topics.SetTopicOwner, request)
    return Moved(f"/topics/{name}")


async def _found(ask: Ask, name: str) -> topics.GetTopicResponse | CallError:
    try:
        answer: topics.GetTopicResponse = await ask.caller.call(
            ask.caller.stubs.topics.GetTopic, topics.GetTopicRequest(name=f"topics/{name}")
        )
    except CallError as failure:
        return failure
    return answer


def _settings(found: Sequence[topics.TopicSetting]) -> Table:
    ordered = sorted(found, key=lambda each: not each.own)
    rows: list[Cells] = [
        [each.name, each.value or words.NONE, "the topic" if each.own else "the cluster"] for each in ordered
    ]
    return Table("Settings", ("Setting", "Value", "Set for"), rows, "No setting is known.")


async def _past(ask: Ask, name: str) -> Table:
    request = admin.ListHistoryRequest(page_size=DECISIONS, topic=name)
    answer = await ask.caller.call(ask.caller.stubs.decisions.ListHistory, request)
    rows: list[Cells] = [
        [
            Cell(f"{each.revision:,}", f"/changes/{each.revision}"), words.moment(each.time),
            each.place or "nowhere", actor_text(each), each.reason or words.NONE,
        ]
        for each in answer.entries
    ]  # fmt: skip
    more = here("/history", topic=name) if answer.next_page_token else ""
    columns = ("Revision", "When", "Lived on", "By", "Why")
    return Table("Where it lived", columns, rows, "No decision has moved it.", more=more)


async def _moves(ask: Ask, name: str) -> list[Part]:
    """Moves of this topic with its records, among those that control keeps."""
    try:
        answer = await ask.caller.call(
            ask.caller.stubs.topic_moves.ListTopicMoves, topic_moves.ListTopicMovesRequest(page_size=1000)
        )
    except CallError as failure:
        return [Notice(f"Moves are not known: {failure}", Tone.WARNING)]
    found = [each for each in answer.topic_moves if each.spec.topic == name]
    parts: list[Part] = [
        Notice("It moves now", Tone.WARNING, [Cell(short(each.name), f"/moves/{short(each.name)}")])
        for each in found
        if each.state in MOVING
    ]
    if found:
        columns = ("Move", "Topic", "From", "To", "State", "How far", "Began", "By")
        parts.append(Table("Moves with records", columns, [move_row(each) for each in found], ""))
    return parts


async def _profile(ask: Ask, name: str) -> list[Part]:
    """The formats of its records, if a pipeline has looked at them."""
    try:
        found = await ask.caller.call(
            ask.caller.stubs.profiles.GetTopicProfile, profiles.GetTopicProfileRequest(name=f"topics/{name}")
        )
    except CallError:
        return []
    formats = ", ".join(f"{kind} {number:,}" for kind, number in sorted(found.formats.items())) or words.NONE
    facts: list[Item] = [
        ("Formats of values", formats),
        ("Records looked at", f"{found.records:,}{', a sample' if found.is_sample else ''}"),
        ("Looked at", words.age(found.time)),
        ("Different keys, estimated", f"{found.distinct_keys:,}"),
    ]
    return [Facts("Profile", facts)]
