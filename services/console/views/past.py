"""History in words, the mesh at a moment, the differences between two revisions, and the search of audits."""

from __future__ import annotations

from typing import Any

from mesh.rpc import admin, audit
from mesh.wording import actor_text, decision_text, match_text, rule_text, short
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, choice, here, search, tick, time_of
from services.console.parts import Cell, Cells, Control, Facts, Field, Notice, Page, Part, Table, Tone


async def history(ask: Ask) -> Page:
    topic, name = ask.said("topic"), ask.said("name")
    request = admin.ListHistoryRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    if topic:
        request.topic = topic
    elif name:
        request.name = name
    answer = await ask.caller.call(ask.caller.stubs.decisions.ListHistory, request)
    rows: list[Cells] = [
        [
            Cell(f"{each.revision:,}", f"/changes/{each.revision}"),
            words.moment(each.time),
            actor_text(each),
            "; ".join(each.changes),
            words.toned(each.outcome or words.NONE),
            each.reason or words.NONE,
            *([each.place or words.NONE] if topic else []),
        ]
        for each in answer.entries
    ]
    columns = ("Revision", "When", "By", "What", "Outcome", "Why", *(("Place",) if topic else ()))
    form = search(
        "/history",
        "Show",
        Field("topic", "Topic", value=topic, help="The decisions that moved it."),
        Field("name", "Or resource", value=name, help="rules/apples, clusters/c1, acls, access/ada"),
    )
    table = Table("Decisions", columns, rows, "There is no such decision.", more=ask.more(answer.next_page_token))
    links = [Cell("The mesh at a moment", "/history/as-of"), Cell("Compare two revisions", "/history/diff")]
    return Page("History", [form, table], lead="Every decision, newest first.", links=links)


async def as_of(ask: Ask) -> Page:
    revision, moment = ask.number("revision"), time_of(ask, "time")
    form = search(
        "/history/as-of",
        "Show",
        Field("revision", "At revision", value=ask.said("revision")),
        Field("time", "Or at time (UTC)", Control.TIME, ask.said("time")),
        title="Moment",
    )
    lead = "Clusters and rules as they were."
    if not revision and moment is None:
        return Page("The mesh at a moment", [form], lead=lead)
    request = admin.GetAsOfRequest(time=moment) if moment is not None else admin.GetAsOfRequest(revision=revision)
    found = await ask.caller.call(ask.caller.stubs.decisions.GetAsOf, request)
    facts = Facts(
        "Then",
        [
            ("Revision", f"{found.revision:,}"),
            ("Time", words.moment(found.time)),
            ("Frozen", "yes" if found.frozen else "no"),
        ],
    )
    rules = [
        [short(each.name), each.place, match_text(each.spec.match), decision_text(each.spec)] for each in found.rules
    ]
    clusters = [[each.spec.cluster_name, ", ".join(each.spec.bootstrap_servers)] for each in found.clusters]
    record = [[short(each.name), each.spec.WhichOneof("kind") or words.NONE] for each in found.record_rules]
    parts: list[Part] = [
        form,
        facts,
        Table("Rules", ("Rule", "Place", "Matches", "Decides"), rules, "There was no rule."),
        Table("Clusters", ("Cluster", "Addresses"), clusters, "There was no cluster."),
        Table("Record rules", ("Record rule", "Kind"), record, "There was no record rule."),
    ]
    links = [Cell("Compare with now", here("/history/diff", start=found.revision))]
    return Page("The mesh at a moment", parts, lead=lead, links=links)


async def diff(ask: Ask) -> Page:
    start, end = ask.number("start"), ask.number("end")
    form = search(
        "/history/diff",
        "Compare",
        Field("start", "From revision", value=ask.said("start"), required=True),
        Field("end", "To revision", value=ask.said("end"), help="Empty: now."),
        title="Revisions",
    )
    if not start:
        return Page("Compare two revisions", [form])
    request = admin.DiffRequest(from_revision=start, to_revision=end)
    answer = await ask.caller.call(ask.caller.stubs.decisions.Diff, request)
    lead = f"From revision {answer.from_revision:,} to {answer.to_revision:,}."
    return Page("Compare two revisions", [form, *difference_tables(answer)], lead=lead)


def difference_tables(of: admin.DiffResponse) -> list[Part]:
    """The rules, clusters and record rules that differ, and the topics that have another cluster."""
    rules = [
        [
            short((each.after if each.HasField("after") else each.before).name),
            rule_text(each.before.spec) if each.HasField("before") else words.NONE,
            rule_text(each.after.spec) if each.HasField("after") else words.NONE,
        ]
        for each in of.rules
    ]
    differing: list[Any] = [*of.clusters, *of.record_rules]
    others: list[Cells] = [
        [
            short((each.after if each.HasField("after") else each.before).name),
            "there" if each.HasField("before") else words.NONE,
            "there" if each.HasField("after") else words.NONE,
        ]
        for each in differing
    ]
    moves: list[Cells] = [words.move(each) for each in of.moves]
    parts: list[Part] = [
        Table("Rules that differ", ("Rule", "Before", "After"), rules, "No rule differs."),
        Table("Topics that move", ("Topic", "From", "To", "Partitions"), moves, "No topic moves."),
    ]
    if others:
        parts.append(Table("Clusters and record rules that differ", ("Name", "Before", "After"), others, ""))
    if of.unreachable:
        text = f"{', '.join(of.unreachable)} did not answer, so moves may be missing."
        parts.append(Notice(text, Tone.WARNING))
    return parts


async def calls(ask: Ask) -> Page:
    """The calls that wanted to change something."""
    actor, refused = ask.said("actor"), ask.said("refused")
    request = admin.ListAuditEventsRequest(
        page_size=PAGE_SIZE, page_token=ask.page_token, actor=actor, refused_only=bool(refused)
    )
    answer = await ask.caller.call(ask.caller.stubs.decisions.ListAuditEvents, request)
    rows: list[Cells] = [
        [
            words.moment(each.time),
            actor_text(each),
            each.method.rpartition("/")[2] + (" (check only)" if each.validate_only else ""),
            each.resource or words.NONE,
            words.toned(each.code),
            each.problem or each.reason or words.NONE,
            Cell(f"{each.revision:,}", f"/changes/{each.revision}") if each.revision else words.NONE,
        ]
        for each in answer.audit_events
    ]
    form = search("/audit", "Search", Field("actor", "Caller", value=actor), tick("refused", "Only refused", refused))
    columns = ("When", "Caller", "Call", "About", "Answer", "Why", "Revision")
    table = Table("Calls", columns, rows, "There is no such call.", more=ask.more(answer.next_page_token))
    lead = "Each call that wanted to change something, newest first."
    return Page("Audit", [form, table], lead=lead, links=[Cell("Audit of records", "/audit/records")])


RECORD_FIELDS = {
    "topic": "Topic",
    "key": "Key",
    "correlation_id": "Correlation id",
    "traceability_id": "Traceability id",
    "trace_id": "Trace id",
    "service_id": "Service",
}
NEEDED = ("topic", "correlation_id", "traceability_id", "trace_id", "service_id")
STATUSES = ("", "SUCCESS", "FAILURE")


async def records(ask: Ask) -> Page:
    """The operations on records."""
    said = {name: ask.said(name) for name in RECORD_FIELDS}
    fields = [Field(name, label, value=said[name]) for name, label in RECORD_FIELDS.items()]
    form = search("/audit/records", "Search", *fields, choice("status", "Status", ask.said("status"), *STATUSES))
    lead = "Each operation on a record, from the table that a pipeline fills."
    if not any(said[name] for name in NEEDED):
        return Page("Audit of records", [form], lead=lead)
    request = audit.QueryAuditRequest(page_size=PAGE_SIZE, page_token=ask.page_token, audit_status=ask.said("status"))
    for name, value in said.items():
        setattr(request, name, value)
    answer = await ask.caller.call(ask.caller.stubs.audit.Query, request)
    rows: list[Cells] = [
        [
            words.moment(each.time),
            each.service_id,
            each.audit_type.lower().replace("_", " "),
            f"{each.topic}/{each.partition}/{each.offset}",
            each.key or words.NONE,
            words.toned(each.audit_status.lower()),
            each.correlation_id or words.NONE,
        ]
        for each in answer.events
    ]
    columns = ("When", "Service", "Operation", "Record", "Key", "Status", "Correlation id")
    fresh = answer.freshness
    note = f"Complete until {words.moment(fresh.complete_until)}." if fresh.HasField("complete_until") else ""
    table = Table("Operations", columns, rows, "There is no such operation.", note, ask.more(answer.next_page_token))
    parts: list[Part] = [form, table]
    if fresh.problem:
        parts.insert(1, Notice(fresh.problem, Tone.WARNING))
    return Page("Audit of records", parts, lead=lead)
