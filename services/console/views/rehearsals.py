"""Rehearsals of clusters: the figures of a candidate beside those of the present clusters, and their end."""

from __future__ import annotations

from collections.abc import Mapping

from mesh.rehearsals.figures import added, longest_ms, quantile_ms
from mesh.rehearsals.words import verdict
from mesh.rpc import rehearsals
from mesh.wording import word
from services.console import words
from services.console.asking import Ask, change, here
from services.console.parts import Cell, Cells, Facts, Item, Moved, Notice, Page, Part, Table, Tone
from services.console.views.of_clusters import of_clusters

COLUMNS = ("Candidate", "State", "Topics", "Share", "Ends", "So far", "Note")
FIGURES = (
    "Topic", "Cluster", "Produces", "Stored", "Errors", "p50, ms", "p95, ms", "p99, ms", "Longest, ms", "Bytes",
    "Dropped",
)  # fmt: skip


async def listing(ask: Ask) -> Page:
    """A page of clusters; each has a rehearsal at most."""
    found, more = await of_clusters(ask, _get)
    empty = "No cluster is rehearsed: meshctl cluster rehearse begins it."
    table = Table("Rehearsals", COLUMNS, list(map(_row, found)), empty, more=more)
    lead = "Gateways write a share of the batches to a candidate as well, after clients have their answers."
    return Page("Rehearsals", [table], lead=lead)


async def _get(ask: Ask, cluster: str) -> rehearsals.Rehearsal:
    request = rehearsals.GetRehearsalRequest(cluster_name=cluster)
    found: rehearsals.Rehearsal = await ask.caller.call(ask.caller.stubs.rehearsals.GetRehearsal, request)
    return found


def _row(of: rehearsals.Rehearsal) -> Cells:
    name = of.cluster_name
    return [
        Cell(name, here(f"/rehearsals/{name}")), _state(of), f"{len(of.topics):,}", _share(of),
        words.moment(of.end_time), verdict(of), of.problem or words.NONE,
    ]  # fmt: skip


def _state(of: rehearsals.Rehearsal) -> Cell:
    return words.toned(word(rehearsals.RehearsalState, of.state))


def _share(of: rehearsals.Rehearsal) -> str:
    return f"{of.share / 100:g} %"


async def one(ask: Ask) -> Page:
    found = await _get(ask, ask.parameters["cluster"])
    name = found.cluster_name
    facts: list[Item] = [
        ("State", _state(found)),
        ("So far", verdict(found)),
        ("Share of the batches", _share(found)),
        ("Topics", ", ".join(each.topic for each in found.topics)),
        ("Bytes a second of a process, at most", words.size(found.bytes_per_second)),
        ("Ends by itself", words.moment(found.end_time)),
    ]
    figures = list(map(_figures, added(found.figures, by_topic=True)))
    parts: list[Part] = [Notice(found.problem, Tone.BAD)] if found.problem else []
    parts += [
        Facts("Rehearsal", facts),
        Table("Answers, side by side", FIGURES, figures, "No gateway has reported figures yet."),
    ]
    if ask.may_change and found.state != rehearsals.REHEARSAL_STATE_ENDING:
        parts.append(
            change("End it", f"/rehearsals/{name}/end", "End the rehearsal, and delete its topics", tone=Tone.BAD)
        )
    return Page(f"Rehearsal of {name}", parts, live=f"rehearsal/{name}")


def _figures(of: rehearsals.RehearsalFigures) -> Cells:
    longest = longest_ms(of)
    times = [f"{quantile_ms(of.latencies, part, longest):.3g}" for part in (0.5, 0.95, 0.99)]
    return [
        of.topic, of.cluster_name, f"{of.produces:,}", f"{of.stored:,}", _counts(of.errors), *times, f"{longest:.3g}",
        words.size(of.bytes), _counts(of.dropped),
    ]  # fmt: skip


def _counts(of: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(of.items())) or words.NONE


async def end(ask: Ask) -> Moved:
    request = rehearsals.EndRehearsalRequest(
        cluster_name=ask.parameters["cluster"], reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.rehearsals.EndRehearsal, request)
    return Moved("/rehearsals")
