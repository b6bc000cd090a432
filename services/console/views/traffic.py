"""Traffic: what has the most of it, from the tables that a pipeline fills."""

from __future__ import annotations

from collections.abc import Sequence

from mesh import durations
from mesh.rpc import traffic
from mesh.wording import short
from services.console import words
from services.console.asking import Ask, choice, here, search, wrong
from services.console.outcomes import CallError
from services.console.parts import Cell, Facts, Notice, Page, Part, Table, Tone

DIMENSIONS = {
    "topic": traffic.TRAFFIC_DIMENSION_TOPIC,
    "client": traffic.TRAFFIC_DIMENSION_CLIENT,
    "principal": traffic.TRAFFIC_DIMENSION_PRINCIPAL,
    "rule": traffic.TRAFFIC_DIMENSION_RULE,
    "cluster": traffic.TRAFFIC_DIMENSION_CLUSTER,
    "api": traffic.TRAFFIC_DIMENSION_API,
    "reporter": traffic.TRAFFIC_DIMENSION_REPORTER,
}
MEASURES = {
    "bytes": traffic.TRAFFIC_MEASURE_BYTES,
    "records": traffic.TRAFFIC_MEASURE_RECORDS,
    "calls": traffic.TRAFFIC_MEASURE_CALLS,
    "errors": traffic.TRAFFIC_MEASURE_ERRORS,
}
MOST = 50
MOST_ROWS = 1000


async def page(ask: Ask) -> Page:
    by, measure = ask.said("by") or "topic", ask.said("measure") or "bytes"
    for name, value, known in (("by", by, DIMENSIONS), ("measure", measure, MEASURES)):
        if value not in known:
            raise wrong(name, f"{value!r} is none of {', '.join(known)}")
    form = search(
        "/traffic", "Show", choice("by", "By", by, *DIMENSIONS), choice("measure", "Most", measure, *MEASURES)
    )
    parts: list[Part] = [form, *await top(ask, (by,), measure, f"Most {measure} by {by}")]
    return Page("Traffic", parts, lead="The last hour.")


async def top(ask: Ask, by: Sequence[str], measure: str, title: str) -> list[Part]:
    request = traffic.TopTalkersRequest(by=[DIMENSIONS[each] for each in by], measure=MEASURES[measure], limit=MOST)
    answer = await ask.caller.call(ask.caller.stubs.traffic.TopTalkers, request)
    rows = [[*(_named(each.who, name) for name in by), *_figures(each.figures)] for each in answer.talkers]
    columns = (*(name.capitalize() for name in by), "Records", "Bytes", "Calls", "Errors", "p99 of calls")
    fresh = answer.freshness
    note = f"Complete until {words.moment(fresh.complete_until)}." if fresh.HasField("complete_until") else ""
    records, size, calls, errors, latency = _figures(answer.total)
    total = (("Records", records), ("Bytes", size), ("Calls", calls), ("Errors", errors), ("p99 of calls", latency))
    parts: list[Part] = [Table(title, columns, rows, "No traffic was reported.", note), Facts("All together", total)]
    if fresh.problem:
        parts.insert(0, Notice(fresh.problem, Tone.WARNING))
    return parts


def _named(who: traffic.TrafficFilter, name: str) -> Cell | str:
    value = str(getattr(who, name))
    return Cell(short(value), here(f"/rules/{short(value)}")) if name == "rule" and value else value or words.NONE


def _figures(of: traffic.TrafficFigures) -> tuple[str, str, str, str, str]:
    latency = f"{durations.in_ms(of.p99):.1f} ms" if of.HasField("p99") else words.NONE
    return f"{of.records:,}", words.size(of.bytes), f"{of.calls:,}", f"{of.errors:,}", latency


async def hits_by_rule(ask: Ask) -> dict[str, int] | None:
    """Calls of the last hour by the name of the rule that routed them; None if no table of traffic says."""
    found = await _last_hour(ask, "rule", "calls")
    return None if found is None else {each.who.rule: each.figures.calls for each in found.talkers}


async def bytes_by_topic(ask: Ask) -> dict[str, int] | None:
    """Bytes of the last hour, of the topics with the most; None as above."""
    found = await _last_hour(ask, "topic", "bytes")
    return None if found is None else {each.who.topic: each.figures.bytes for each in found.talkers}


async def clients_of(ask: Ask, topic: str) -> Table | Notice:
    """The clients of a topic in the last hour: who produced, who fetched."""
    by = ("api", "client", "principal")
    filtered = traffic.TrafficFilter(topic=topic)
    request = traffic.TopTalkersRequest(
        by=[DIMENSIONS[each] for each in by], measure=MEASURES["bytes"], limit=MOST, filter=filtered
    )
    try:
        answer = await ask.caller.call(ask.caller.stubs.traffic.TopTalkers, request)
    except CallError as failure:
        return Notice(f"Producers and consumers are not known: {failure.text}", Tone.WARNING)
    rows = [[*(_named(each.who, name) for name in by), *_figures(each.figures)[:3]] for each in answer.talkers]
    fresh = answer.freshness
    note = fresh.problem
    if fresh.HasField("complete_until"):
        note = f"Complete until {words.moment(fresh.complete_until)}. {note}".strip()
    columns = ("Call", "Client", "Principal", "Records", "Bytes", "Calls")
    return Table("Producers and consumers in the last hour", columns, rows, "No traffic was reported.", note)


async def _last_hour(ask: Ask, by: str, measure: str) -> traffic.TopTalkersResponse | None:
    request = traffic.TopTalkersRequest(by=[DIMENSIONS[by]], measure=MEASURES[measure], limit=MOST_ROWS)
    try:
        answer: traffic.TopTalkersResponse = await ask.caller.call(ask.caller.stubs.traffic.TopTalkers, request)
    except CallError:
        return None
    return answer if answer.freshness.HasField("complete_until") else None
