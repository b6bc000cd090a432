"""Mirrors and content rules: the list, one with its progress; pause and resume."""

from __future__ import annotations

from mesh.rpc import record_rules
from mesh.wording import short, word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here
from services.console.parts import Cell, Cells, Facts, Item, Moved, Notice, Page, Part, Table, Tone, hidden

MOST_PARTITIONS = 200
PAUSED = record_rules.RECORD_RULE_STATE_PAUSED


async def listing(ask: Ask) -> Page:
    request = record_rules.ListRecordRulesRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.record_rules.ListRecordRules, request)
    rows: list[Cells] = [
        [
            Cell(short(each.name), f"/record-rules/{short(each.name)}"),
            _kind(each.spec),
            _way(each.spec),
            _state(each),
            f"{each.progress.lag:,}" if each.progress.partition_count else words.NONE,
        ]
        for each in answer.record_rules
    ]
    columns = ("Rule", "Kind", "From and to", "State", "Records behind")
    table = Table("Record rules", columns, rows, "There is no record rule.", more=ask.more(answer.next_page_token))
    return Page("Record rules", [table], lead="Mirrors copy topics, content rules distribute records.", live="status")


async def one(ask: Ask) -> Page:
    name = ask.parameters["name"]
    request = record_rules.GetRecordRuleRequest(name=f"recordrules/{name}")
    found = await ask.caller.call(ask.caller.stubs.record_rules.GetRecordRule, request)
    progress = found.progress
    known = found.HasField("progress")
    facts: list[Item] = [
        ("Kind", _kind(found.spec)),
        ("From and to", _way(found.spec)),
        ("State", _state(found)),
        ("Revision", f"{found.revision:,}"),
        ("Changed by", f"{found.actor}, {words.moment(found.update_time)}"),
    ]
    parts: list[Part] = []
    if progress.problem:
        parts.append(Notice(progress.problem, Tone.BAD))
    parts.append(Facts("Record rule", facts))
    if known:
        written = [
            ("Router", progress.router),
            ("Records written", f"{progress.records_written:,}"),
            ("Records filtered", f"{progress.records_filtered:,}"),
            ("Dead letters", f"{progress.records_dead:,}"),
            ("Records behind", f"{progress.lag:,}"),
            ("Reported", words.age(progress.report_time)),
        ]
        parts.append(Facts("Since its worker began", written))
    else:
        parts.append(Notice("No router has reported how far it is.", Tone.WARNING))
    rows: list[Cells] = [
        [each.topic, each.partition, f"{each.position:,}", f"{each.end:,}"]
        for each in progress.partitions[:MOST_PARTITIONS]
    ]
    left = max(progress.partition_count, len(progress.partitions)) - len(rows)
    note = f"{left} more partitions are not shown." if left > 0 else ""
    if rows:
        parts.append(Table("Partitions", ("Topic", "Partition", "Next", "End"), rows, "", note))
    parts += _branches(found.spec)
    if ask.may_change:
        verb = "resume" if found.state == PAUSED else "pause"
        revision = hidden("expected_revision", found.revision)
        title, submit = verb.capitalize(), f"{verb.capitalize()} the record rule"
        parts.append(change(title, f"/record-rules/{name}/{verb}", submit, revision))
    links = [Cell("Its history", here("/history", name=f"recordrules/{name}"))]
    return Page(f"Record rule {name}", parts, links=links, live="status")


def _kind(spec: record_rules.RecordRuleSpec) -> str:
    return "mirror" if spec.HasField("mirror") else "content rule"


def _way(spec: record_rules.RecordRuleSpec) -> str:
    """ "c1/orders -> c2/shop.orders"."""
    if spec.HasField("mirror"):
        of = spec.mirror
        what = of.topic or f"{of.topic_prefix}*"
        return f"{of.source_cluster}/{what} -> {of.target_cluster}/{of.target_topic or '{topic}'}"
    return f"{spec.content.source_cluster}/{spec.content.topic} -> {len(spec.content.branches)} topics by content"


def _branches(spec: record_rules.RecordRuleSpec) -> list[Part]:
    if not spec.HasField("content"):
        return []
    rows = [[each.when, f"{each.target.cluster or 'the same'}/{each.target.topic}"] for each in spec.content.branches]
    return [Table("Branches", ("When", "To"), rows, "It has no branch.")]


def _state(of: record_rules.RecordRule) -> Cell:
    if of.state != PAUSED and of.progress.problem:
        return Cell("does not run", tone=Tone.BAD)
    return words.toned(word(record_rules.RecordRuleState, of.state))


def _options(ask: Ask) -> record_rules.RecordRuleOptions:
    return record_rules.RecordRuleOptions(
        expected_revision=ask.number("expected_revision"), reason=ask.said("reason"), request_id=ask.said("request_id")
    )


async def pause(ask: Ask) -> Moved:
    name = ask.parameters["name"]
    request = record_rules.PauseRecordRuleRequest(name=f"recordrules/{name}", options=_options(ask))
    await ask.caller.call(ask.caller.stubs.record_rules.PauseRecordRule, request)
    return Moved(f"/record-rules/{name}")


async def resume(ask: Ask) -> Moved:
    name = ask.parameters["name"]
    request = record_rules.ResumeRecordRuleRequest(name=f"recordrules/{name}", options=_options(ask))
    await ask.caller.call(ask.caller.stubs.record_rules.ResumeRecordRule, request)
    return Moved(f"/record-rules/{name}")
