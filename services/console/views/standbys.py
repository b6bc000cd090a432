"""Standbys of clusters: how far their copies are, what a fail-over would lose, the fail-over itself, and their end."""

from __future__ import annotations

from mesh import durations
from mesh.rpc import standbys
from mesh.wording import word
from services.console import words
from services.console.asking import Ask, change, here
from services.console.parts import Cell, Cells, Facts, Form, Item, Moved, Notice, Page, Part, Table, Tone, hidden
from services.console.views.of_clusters import of_clusters

COLUMNS = ("Cluster", "Standby", "State", "Topics", "Records behind", "Since", "Note")
TOPIC_COLUMNS = ("Topic", "Copy", "Records behind", "Behind", "Problem")
LOSS_COLUMNS = ("Topic", "Partition", "Records", "From offset", "To offset")
MOST_ROWS = 500
FAIL_OVER_TIMEOUT_S = 60.0
"""Control asks the dead cluster first."""


async def listing(ask: Ask) -> Page:
    """A page of clusters; control has a standby for each of them at most."""
    found, more = await of_clusters(ask, _get)
    empty = "No cluster has a standby: meshctl cluster standby begins one."
    table = Table("Standbys", COLUMNS, list(map(_row, found)), empty, more=more)
    lead = "Routers copy a cluster's topics to another cluster, which takes their place when an operator orders it."
    return Page("Standbys", [table], lead=lead)


async def _get(ask: Ask, cluster: str) -> standbys.Standby:
    request = standbys.GetStandbyRequest(name=f"standbys/{cluster}")
    found: standbys.Standby = await ask.caller.call(ask.caller.stubs.standbys.GetStandby, request)
    return found


def _row(of: standbys.Standby) -> Cells:
    source = of.spec.source_cluster
    copied = [each for each in of.topics if not each.left]
    return [
        Cell(source, here(f"/standbys/{source}")), of.spec.target_cluster, _state(of), f"{len(copied):,}",
        f"{sum(each.lag_records for each in copied):,}", words.moment(of.create_time), of.problem or words.NONE,
    ]  # fmt: skip


def _state(of: standbys.Standby) -> Cell:
    return words.toned(word(standbys.StandbyState, of.state))


async def one(ask: Ask) -> Page:
    found = await _get(ask, ask.parameters["cluster"])
    path = f"/standbys/{found.spec.source_cluster}"
    parts = _parts(found)
    links: list[Cell] = []
    if ask.may_change and found.state == standbys.STANDBY_STATE_FOLLOWING:
        links.append(Cell("Plan a fail-over", here(f"{path}/fail-over")))
    if ask.may_change:
        parts.append(change("End it", f"{path}/end", "End the standby; its copies stay", tone=Tone.BAD))
    return Page(
        f"Standby of {found.spec.source_cluster}", parts, links=links, live=f"standby/{found.spec.source_cluster}"
    )


def _parts(of: standbys.Standby) -> list[Part]:
    spec, rate = of.spec, of.spec.bytes_per_second
    facts: list[Item] = [
        ("State", _state(of)),
        ("Cluster", spec.source_cluster),
        ("Copies on", spec.target_cluster),
        ("Topics", spec.topics or "all"),
        (
            "Bytes a second of a copy, at most",
            words.size(rate) if rate else "no bound",
        ),
        ("Began", f"{words.moment(of.create_time)} by {of.actor}"),
        ("Failed over", words.moment(of.fail_over_time)),
        ("Why", of.reason or words.NONE),
    ]
    rows = [_topic(each) for each in of.topics[:MOST_ROWS]]
    left = len(of.topics) - len(rows)
    note = f"{words.count(left, 'topic')} more are not shown." if left else ""
    parts: list[Part] = [Notice(of.problem, Tone.BAD)] if of.problem else []
    parts.append(Facts("Standby", facts))
    parts.append(Table("Topics", TOPIC_COLUMNS, rows, "Control has not found its topics yet.", note))
    return [*parts, _losses(of)]


def _topic(of: standbys.StandbyTopic) -> Cells:
    behind = f"{durations.in_s(of.lag):,.1f} s" if of.HasField("lag") else "not known"
    copy = Cell("none: a fail-over leaves it", tone=Tone.WARNING) if of.left else of.copy.target_topic
    return [
        Cell(of.topic, here(f"/topics/{of.topic}")), copy, f"{of.lag_records:,}", words.NONE if of.left else behind,
        of.problem or words.NONE,
    ]  # fmt: skip


def _losses(of: standbys.Standby) -> Table:
    """The records that routers have seen the end of, and that the copies lack."""
    rows: list[Cells] = [
        [topic.topic, each.partition, f"{each.end - each.position:,}", f"{each.position:,}", f"{each.end:,}"]
        for topic in of.topics
        for each in topic.partitions
        if each.end > each.position
    ]
    empty = "No copy lacks a record that a router has seen the end of."
    left = len(rows) - MOST_ROWS
    note = "Records that came after a router's last look are lost, too."
    if left > 0:
        note = f"{words.count(left, 'partition')} more are not shown. {note}"
    return Table("Records that the copies lack", LOSS_COLUMNS, rows[:MOST_ROWS], empty, note)


async def plan(ask: Ask) -> Page:
    """The loss of a fail-over, as control says. Control refuses the plan while the cluster answers."""
    cluster = ask.parameters["cluster"]
    target = (await _get(ask, cluster)).spec.target_cluster
    request = standbys.FailOverRequest(name=f"standbys/{cluster}", target_cluster=target, validate_only=True)
    found = await ask.caller.call(ask.caller.stubs.standbys.FailOver, request, timeout_s=FAIL_OVER_TIMEOUT_S)
    parts = [*_parts(found), _form(cluster, target)]
    return Page(f"Plan: fail over {cluster} to {target}", parts, lead="Nothing has changed yet.")


def _form(cluster: str, target: str) -> Form:
    named = hidden("target_cluster", target)
    return change("Confirm", f"/standbys/{cluster}/fail-over", f"Lead its topics to {target}", named, tone=Tone.BAD)


async def fail_over(ask: Ask) -> Moved:
    cluster = ask.parameters["cluster"]
    request = standbys.FailOverRequest(
        name=f"standbys/{cluster}", target_cluster=ask.said("target_cluster"), reason=ask.said("reason"),
        request_id=ask.said("request_id"),
    )  # fmt: skip
    await ask.caller.call(ask.caller.stubs.standbys.FailOver, request, timeout_s=FAIL_OVER_TIMEOUT_S)
    return Moved(here(f"/standbys/{cluster}"))


async def end(ask: Ask) -> Moved:
    request = standbys.EndStandbyRequest(
        name=f"standbys/{ask.parameters['cluster']}", reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.standbys.EndStandby, request)
    return Moved("/standbys")
