"""Lineage: where records come from and where they go, as a drawing and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.rpc import lineage as pb
from services.console import graphs, words
from services.console.asking import Ask, choice, here, search, wrong
from services.console.layers import layered
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Field, Form, Graph, Notice, Page, Part, Table, Tone

KINDS = {
    pb.LINEAGE_NODE_KIND_TOPIC: "topic",
    pb.LINEAGE_NODE_KIND_GROUP: "group",
    pb.LINEAGE_NODE_KIND_APPLICATION: "application",
    pb.LINEAGE_NODE_KIND_BACKEND: "backend",
}
DEEDS = {
    pb.LINEAGE_EDGE_KIND_PRODUCES: "produces to",
    pb.LINEAGE_EDGE_KIND_CONSUMES: "is read by",
    pb.LINEAGE_EDGE_KIND_MEMBER: "has the member",
    pb.LINEAGE_EDGE_KIND_COPIES: "is copied to",
    pb.LINEAGE_EDGE_KIND_DELIVERS: "delivers to",
}
DIRECTIONS = {
    "both": pb.LINEAGE_DIRECTION_BOTH,
    "upstream": pb.LINEAGE_DIRECTION_UPSTREAM,
    "downstream": pb.LINEAGE_DIRECTION_DOWNSTREAM,
}
STARTS = ("topic", "group", "application")
DEPTH, DEPTH_OF_TOPIC = 6, 3
MOST, MOST_OF_TOPIC = 120, 30
"""Edges of a page: each takes half a kB in the drawing, and half a kB in the table."""
STEP: Final = 280
"""Pixels from one column to the next: lines have no labels."""
LEAD = (
    "Applications that write topics, groups that read them, and what the applications of these groups write. "
    "By the traffic that control has seen."
)
Node = tuple[str, str]
"""Kind and name."""


async def page(ask: Ask) -> Page:
    said = {name: ask.said(name) for name in STARTS}
    given = [name for name in STARTS if said[name]]
    direction, depth = ask.said("direction") or "both", ask.number("depth")
    if direction not in DIRECTIONS:
        raise wrong("direction", f"{direction!r} is none of {', '.join(DIRECTIONS)}")
    form = search(
        "/lineage",
        "Show",
        Field("topic", "Topic", value=said["topic"]),
        Field("group", "or group", value=said["group"]),
        Field("application", "or application", value=said["application"], help="User:alice/orders"),
        choice("direction", "Direction", direction, *DIRECTIONS),
        Field("depth", "Steps", value=str(depth or DEPTH)),
        title="Show the lineage of",
    )
    if len(given) > 1:
        raise wrong(given[1], f"there is a {given[0]}, too; give one of them")
    if not given:
        return Page("Lineage", [form], lead=LEAD)
    [kind] = given
    request = pb.QueryLineageRequest(
        **{kind: said[kind]}, direction=DIRECTIONS[direction], depth=depth or DEPTH, most_edges=MOST
    )
    try:
        answer = await ask.caller.call(ask.caller.stubs.lineage.QueryLineage, request)
    except CallError as failure:
        if failure.code != "NOT_FOUND":
            raise
        return Page("Lineage", [form, Notice(failure.text)], lead=LEAD)
    return _page(form, kind, said[kind], answer)


def _page(form: Form, kind: str, name: str, answer: pb.QueryLineageResponse) -> Page:
    links = {
        "topic": lambda: [Cell("Its page", f"/topics/{name}")] if "/" not in name else [],
        "group": lambda: [Cell("Its page", f"/groups/{name}")],
        "application": lambda: [Cell("Its clients", here("/clients", principal=answer.start.principal))],
    }[kind]()
    parts: list[Part] = [form, *parts_of(answer)]
    return Page(f"Lineage of {kind} {name}", parts, lead=LEAD, links=links)


async def of_topic(ask: Ask, name: str) -> list[Part]:
    """The lineage near a topic, for the page of the topic."""
    request = pb.QueryLineageRequest(topic=name, depth=DEPTH_OF_TOPIC, most_edges=MOST_OF_TOPIC)
    try:
        answer = await ask.caller.call(ask.caller.stubs.lineage.QueryLineage, request)
    except CallError as failure:
        return [Notice(f"No lineage is known: {failure.text}")]
    return parts_of(answer)


def parts_of(answer: pb.QueryLineageResponse) -> list[Part]:
    """A drawing, the same as a table, and what is missing."""
    return [_graph(answer), _table(answer.edges), *_missing(answer)]


def _graph(answer: pb.QueryLineageResponse) -> Graph:
    start = _key(answer.start)
    nodes = {start: answer.start} | {_key(each): each for edge in answer.edges for each in (edge.source, edge.target)}
    present = {_key(each) for edge in answer.edges if edge.present for each in (edge.source, edge.target)}
    columns, left_out = layered(start, [(_key(each.source), _key(each.target)) for each in answer.edges])
    boxes = [
        graphs.Node(
            _box(nodes[key]), number, _shown(nodes[key]), (_what(nodes[key]),), _address(nodes[key]),
            Tone.GOOD if key == start else Tone.PLAIN if key in present else Tone.QUIET,
        )
        for number, keys in enumerate(columns)
        for key in keys
    ]  # fmt: skip
    lines = [
        graphs.Edge(
            _box(each.source),
            _box(each.target),
            f"{_shown(each.source)} {DEEDS[each.kind]} {_shown(each.target)}{f', {each.rule}' if each.rule else ''}",
            dashed=not each.present,
        )
        for each in answer.edges
    ]
    note = "A dashed line was there before, and is not there now."
    if left_out:
        note = f"{words.count(left_out, 'more node')} had no room: the table has them. {note}"
    return graphs.drawn("Lineage", ("",) * len(columns), boxes, lines, note, STEP)


def _table(edges: Sequence[pb.LineageEdge]) -> Table:
    rows: list[Cells] = [
        [
            _cell(each.source), DEEDS[each.kind], _cell(each.target),
            Cell(each.rule, _rule_address(each.rule)) if each.rule else words.NONE, _rate(each),
            words.age(each.first_time), Cell("now", tone=Tone.GOOD) if each.present else words.age(each.last_time),
        ]
        for each in edges
    ]  # fmt: skip
    columns = ("From", "Does", "To", "By", "A second", "First seen", "Last seen")
    return Table("Lineage as a table", columns, rows, "No edge is known.")


def _missing(answer: pb.QueryLineageResponse) -> list[Part]:
    said = [f"Edges may be missing: {answer.gathering.problem}."] if answer.gathering.problem else []
    if answer.gathering.left_out:
        said.append(f"Control had no room for {words.count(answer.gathering.left_out, 'edge')}.")
    if answer.truncated:
        said.append(
            f"There are more than {words.count(len(answer.edges), 'edge')}: show fewer steps, or one direction."
        )
    if answer.hidden:
        said.append(f"{words.count(answer.hidden, 'topic')} beyond your grants, and all behind, are not shown.")
    return [Notice("This lineage is not complete", Tone.WARNING, said)] if said else []


def _rate(of: pb.LineageEdge) -> str:
    if not of.HasField("records_per_second"):
        return words.NONE
    return f"{of.records_per_second:,.1f} records, {words.size(int(of.bytes_per_second))}"


def _key(of: pb.LineageNode) -> Node:
    return KINDS.get(of.kind, "node"), of.name


def _what(of: pb.LineageNode) -> str:
    kind = KINDS.get(of.kind, "node")
    return f"{kind}, {of.cluster}" if of.cluster else kind


def _shown(of: pb.LineageNode) -> str:
    if of.kind != pb.LINEAGE_NODE_KIND_APPLICATION:
        return of.name
    return of.client or f"unnamed clients of {of.principal}"


def _box(of: pb.LineageNode) -> str:
    return ":".join(_key(of))


def _cell(of: pb.LineageNode) -> Cell:
    owner = f" of {of.principal}" if of.client else ""
    return Cell(f"{_what(of)}: {_shown(of)}{owner}", _address(of))


def _address(of: pb.LineageNode) -> str:
    kind = KINDS.get(of.kind, "")
    return here("/lineage", **{kind: of.name}) if kind in STARTS else ""


def _rule_address(rule: str) -> str:
    collection, _, name = rule.partition("/")
    return f"/record-rules/{name}" if collection == "recordrules" else f"/moves/{name}"
