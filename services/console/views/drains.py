"""Drains of clusters: plan one, begin it, follow its topics, pause it, resume it, cancel it."""

from __future__ import annotations

from mesh import durations
from mesh.rpc import drains
from mesh.wording import short, word
from services.console import words
from services.console.asking import Ask, change, here, wrong
from services.console.parts import Cell, Cells, Facts, Field, Form, Item, Moved, Notice, Page, Part, Table, Tone, hidden
from services.console.views.rules import cluster_field

ENDS = (drains.DRAIN_STATE_DONE, drains.DRAIN_STATE_CANCELLED)
FIELDS = ("source_cluster", "target_cluster", "topics", "rate", "budget")
MOST_TOPICS = 500
PLAN_TIMEOUT_S = 60.0
"""Control asks both clusters about each topic."""
TOPIC_COLUMNS = ("Topic", "State", "Partitions", "Size", "Records behind", "Producers waited", "Certificate", "Problem")


def row(of: drains.Drain) -> Cells:
    """A drain of a cluster, with the numbers of its topics."""
    return [
        Cell(short(of.name), f"/drains/{short(of.name)}"), of.spec.source_cluster, of.spec.target_cluster,
        words.toned(word(drains.DrainState, of.state)), _far(of.counts), words.moment(of.create_time), of.actor,
        of.problem or words.NONE,
    ]  # fmt: skip


def _far(of: drains.DrainCounts) -> Cell:
    topics = of.waiting + of.moving + of.moved + of.left
    return Cell(f"{of.moved:,} of {topics:,} moved, {of.left:,} stay", done=of.moved / max(1, topics))


async def form(ask: Ask) -> Form:
    """The form that leads to the plan of a drain."""
    return Form(
        "Drain a cluster",
        "/drains/check",
        "Show the plan",
        (
            Field("source_cluster", "Cluster to drain", required=True),
            await cluster_field(ask, ""),
            Field("topics", "Topics", help="A pattern of * and ?. Empty: all."),
            Field("rate", "Bytes a second, at most", help="Empty: no bound."),
            Field("budget", "Milliseconds that producers may wait", help="Empty: 1,000."),
        ),
    )


async def one(ask: Ask) -> Page:
    name = ask.parameters["drain"]
    found = await ask.caller.call(ask.caller.stubs.drains.GetDrain, drains.GetDrainRequest(name=f"drains/{name}"))
    parts = [*_problems(found), _facts(found), _topics(found)]
    if found.HasField("remainder"):
        parts.append(_remainder(found.remainder))
    if ask.may_change and found.state == drains.DRAIN_STATE_RUNNING:
        parts.append(change("Pause it", f"/drains/{name}/pause", "Begin no further move"))
    if ask.may_change and found.state == drains.DRAIN_STATE_PAUSED:
        parts.append(change("Resume it", f"/drains/{name}/resume", "Go on with the drain"))
    if ask.may_change and found.state in (drains.DRAIN_STATE_RUNNING, drains.DRAIN_STATE_PAUSED):
        parts.append(change("Cancel it", f"/drains/{name}/cancel", "Cancel the drain", tone=Tone.BAD))
    live = "" if found.state in ENDS else f"drain/{name}"
    return Page(f"Drain {name}", parts, links=[Cell("All moves", "/moves")], live=live)


def _problems(found: drains.Drain) -> list[Part]:
    notes: list[Part] = [Notice(found.problem, Tone.BAD)] if found.problem else []
    return notes + [Notice(each, Tone.WARNING) for each in found.notes]


def _facts(of: drains.Drain) -> Facts:
    spec = of.spec
    facts: list[Item] = [
        ("From", spec.source_cluster),
        ("To", spec.target_cluster),
        ("Topics", spec.topics or "all"),
        ("Topics at the same time", f"{spec.at_once:,}"),
        ("Bytes a second, at most", words.size(spec.bytes_per_second) if spec.bytes_per_second else "no bound"),
        ("Producers may wait", f"{durations.whole_ms(spec.hold_budget):,} ms"),
        ("Moves begin", _window(spec)),
    ]
    if of.name:
        facts = [
            ("State", words.toned(word(drains.DrainState, of.state))),
            ("How far", _far(of.counts)),
            *facts,
            ("Began", f"{words.moment(of.create_time)} by {of.actor}"),
            ("Ended", words.moment(of.end_time)),
            ("Why", of.reason or words.NONE),
        ]
    return Facts("Drain" if of.name else "Plan", facts)


def _window(of: drains.DrainSpec) -> str:
    if not of.HasField("window"):
        return "at any time"
    start, end = of.window.from_minute, of.window.to_minute
    return f"from {start // 60:02d}:{start % 60:02d} to {end // 60:02d}:{end % 60:02d} UTC"


def _topics(of: drains.Drain) -> Table:
    rows = [_topic(each) for each in of.topics[:MOST_TOPICS]]
    left = len(of.topics) - len(rows)
    note = f"{words.count(left, 'topic')} more are not shown." if left else ""
    return Table("Topics", TOPIC_COLUMNS, rows, f"No topic of {of.spec.source_cluster} is meant.", note)


def _topic(of: drains.DrainTopic) -> Cells:
    state = words.toned(word(drains.DrainTopicState, of.state), f"/moves/{short(of.move)}" if of.move else "")
    waited = durations.whole_ms(of.pause)
    certificate = Cell("confirmed", tone=Tone.GOOD) if of.confirmed else Cell("not confirmed", tone=Tone.BAD)
    return [
        Cell(of.topic, here(f"/topics/{of.topic}")), state, f"{of.partitions:,}",
        words.size(of.bytes) if of.HasField("bytes") else words.NONE,
        f"{of.behind:,}" if of.HasField("behind") else words.NONE,
        f"{waited:,} ms" if waited else words.NONE,
        certificate if of.state == drains.DRAIN_TOPIC_STATE_MOVED else words.NONE,
        of.problem or words.NONE,
    ]  # fmt: skip


def _remainder(of: drains.DrainRemainder) -> Facts:
    """The things that are still on the cluster."""
    facts: list[Item] = [
        ("Topics", ", ".join(of.topics) or "none"),
        ("Groups", ", ".join(of.groups) or "none"),
        ("Transactional ids", ", ".join(of.transactional_ids) or "none"),
        ("Rules", ", ".join(of.rules) or "none"),
    ]
    return Facts("Still on the cluster", [*facts, *(("Not known", each) for each in of.problems)])


def _spec(ask: Ask) -> drains.DrainSpec:
    source, target = ask.said("source_cluster"), ask.said("target_cluster")
    for name, value in (("source_cluster", source), ("target_cluster", target)):
        if not value:
            raise wrong(name, "is missing")
    return drains.DrainSpec(
        source_cluster=source, target_cluster=target, topics=ask.said("topics"), bytes_per_second=ask.number("rate"),
        hold_budget=durations.of_ms(min(ask.number("budget"), 2**31)),
    )  # fmt: skip


async def check(ask: Ask) -> Page:
    """The plan of control: which topics fit, and why others stay."""
    request = drains.StartDrainRequest(spec=_spec(ask), validate_only=True)
    found = await ask.caller.call(ask.caller.stubs.drains.StartDrain, request, timeout_s=PLAN_TIMEOUT_S)
    parts = [*_problems(found), _facts(found), _topics(found)]
    fields = [hidden(name, ask.said(name)) for name in FIELDS if ask.said(name)]
    parts.append(change("Confirm", "/drains/start", "Begin the drain", *fields))
    return Page(f"Plan: drain {found.spec.source_cluster}", parts, lead="Nothing has changed yet.")


async def start(ask: Ask) -> Moved:
    request = drains.StartDrainRequest(spec=_spec(ask), reason=ask.said("reason"), request_id=ask.said("request_id"))
    made = await ask.caller.call(ask.caller.stubs.drains.StartDrain, request, timeout_s=PLAN_TIMEOUT_S)
    return Moved(f"/drains/{short(made.name)}")


async def pause(ask: Ask) -> Moved:
    return await _change(ask, ask.caller.stubs.drains.PauseDrain, drains.PauseDrainRequest)


async def resume(ask: Ask) -> Moved:
    return await _change(ask, ask.caller.stubs.drains.ResumeDrain, drains.ResumeDrainRequest)


async def cancel(ask: Ask) -> Moved:
    return await _change(ask, ask.caller.stubs.drains.CancelDrain, drains.CancelDrainRequest)


async def _change(
    ask: Ask,
    method: object,
    request: type[drains.PauseDrainRequest | drains.ResumeDrainRequest | drains.CancelDrainRequest],
) -> Moved:
    name = ask.parameters["drain"]
    asked = request(name=f"drains/{name}", reason=ask.said("reason"), request_id=ask.said("request_id"))
    await ask.caller.call(method, asked)
    return Moved(f"/drains/{name}")
