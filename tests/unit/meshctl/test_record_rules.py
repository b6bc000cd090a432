"""`meshctl mirror` and `meshctl content`: what is typed, what control is asked, what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from google.protobuf.json_format import MessageToDict

from mesh.rpc import admin, events, record_rules
from meshctl import wording
from meshctl.record_rules import Rates, start_at
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
MIRROR = ("mirror", "create", "m", "--from", "c1", "--to", "c2", "--topic", "orders")
CONTENT = ("content", "create", "c", "--from", "c1", "--topic", "orders")


def mirror_rule(rule_id: str = "m", **progress: Any) -> record_rules.RecordRule:
    spec = record_rules.RecordRuleSpec(
        record_rule_id=rule_id,
        mirror=record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic="orders"),
        start=record_rules.StartAt(earliest=True),
    )
    rule = record_rules.RecordRule(
        name=f"recordrules/{rule_id}", spec=spec, state=record_rules.RECORD_RULE_STATE_RUNNING, revision=7, actor="ada"
    )
    if progress:
        rule.progress.CopyFrom(record_rules.RecordRuleProgress(router="members/r1", **progress))
    return rule


def content_rule(rule_id: str = "c") -> record_rules.RecordRule:
    branch = record_rules.ContentBranch(when="value.a == 1", target=record_rules.RecordTarget(topic="ones"))
    spec = record_rules.RecordRuleSpec(
        record_rule_id=rule_id,
        content=record_rules.ContentRuleSpec(source_cluster="c1", topic="orders", branches=[branch]),
    )
    return record_rules.RecordRule(name=f"recordrules/{rule_id}", spec=spec, revision=8)


def asked(control: ScriptedControl, method: str) -> Any:
    [request] = control.requests(method)
    return request


def said(message: Any) -> dict[str, Any]:
    """The fields that are set."""
    return MessageToDict(message, preserving_proto_field_name=True)


def test_a_mirror_is_made_of_its_options(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["CreateRecordRule"] = mirror_rule()
    options = (
        "--target-topic", "copy.{topic}", "--filter", "headers.a == 'b'", "--start", "2026-11-21T20:00:00+01:00",
        "--transform", "set-header:via=mesh", "--transform", "redact:card", "--transform", "drop-header:x",
        "--sync-groups", "--group-regex", "b.*", "--sync-interval", "5000", "--no-keep-topics-in-step",
        "--reason", "because",
    )  # fmt: skip
    result = meshctl(*MIRROR, *options)
    assert result.exit_code == 0, result.output
    assert "m: c1/orders -> c2/orders (running)\nat revision 7" in result.output
    request = asked(control, "CreateRecordRule")
    assert said(request.record_rule) == {
        "record_rule_id": "m",
        "mirror": {
            "source_cluster": "c1",
            "target_cluster": "c2",
            "topic": "orders",
            "target_topic": "copy.{topic}",
            "filter": "headers.a == 'b'",
            "transforms": [
                {"set_header": {"name": "via", "value": "mesh"}},
                {"redact_json_field": "card"},
                {"drop_header": "x"},
            ],
            "group_offsets": {"continuous": True, "group_regex": "b.*", "sync_interval": "5s"},
            "keep_topics_in_step": False,
        },
        "start": {"time": "2026-11-21T19:00:00Z"},
    }
    assert (request.options.reason, len(request.options.request_id)) == ("because", 36)


def test_a_content_rule_pairs_expressions_with_targets(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["CreateRecordRule"] = content_rule()
    branches = ("--when", "value.a == 1", "--to", "ones", "--when", "value.a == 2", "--to", "c2/twos")
    result = meshctl(*CONTENT, *branches, "--otherwise", "rest", "--dead-letters", "bad", "--value-format", "avro")
    assert result.exit_code == 0, result.output
    content = said(asked(control, "CreateRecordRule").record_rule)["content"]
    assert content["branches"] == [
        {"when": "value.a == 1", "target": {"topic": "ones"}},
        {"when": "value.a == 2", "target": {"cluster": "c2", "topic": "twos"}},
    ]
    assert (content["otherwise"], content["dead_letters"]) == ({"topic": "rest"}, {"topic": "bad"})
    assert content["value_format"] == "VALUE_FORMAT_AVRO"


@pytest.mark.parametrize(
    "text",
    [
        "record_rule_id: c\n"
        "content: {source_cluster: c1, topic: orders, branches: [{when: 'true', target: {topic: t}}]}",
        '{"source_cluster": "c1", "topic": "orders", "branches": [{"when": "true", "target": {"topic": "t"}}]}',
    ],
)
def test_a_rule_may_come_from_a_file(control: ScriptedControl, meshctl: Meshctl, text: str) -> None:
    result = meshctl("content", "create", "c", "-f", "-", stdin=text)
    assert result.exit_code == 0, result.output
    spec = asked(control, "CreateRecordRule").record_rule
    assert (spec.record_rule_id, spec.content.topic, spec.content.branches[0].when) == ("c", "orders", "true")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mirror", "create", "m", "--from", "c1"), "say --from CLUSTER, --to CLUSTER"),
        ((*MIRROR, "--prefix", "o"), "--topic T or --prefix P"),
        ((*MIRROR, "--start", "yesterday"), "expected earliest, latest, a time"),
        ((*MIRROR, "--start", "orders:0=x"), "'0=x' is no partition with its offset"),
        ((*MIRROR, "--transform", "upper"), "expected set-header:NAME=VALUE, drop-header:NAME, redact:PATH"),
        (CONTENT, "at least one --when EXPR --to TOPIC"),
        ((*CONTENT, "--when", "true"), "there are 1 and 0"),
        (("mirror", "rewind", "m"), "Missing option '--to'"),
    ],
)
def test_what_is_not_right_is_said_before_control_is_asked(
    control: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...], words: str
) -> None:
    result = meshctl(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert control.calls == []


def test_a_file_that_is_no_rule_is_refused(control: ScriptedControl, meshctl: Meshctl) -> None:
    result = meshctl("mirror", "create", "m", "-f", "-", stdin="sourcecluster: c1")
    assert result.exit_code == 2
    assert "sourcecluster" in result.output
    assert control.calls == []


def test_an_update_changes_what_is_said_and_compares_revisions(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetRecordRule"] = control.answers["UpdateRecordRule"] = mirror_rule()
    result = meshctl("mirror", "update", "m", "--filter", "headers.x == 'y'")
    assert result.exit_code == 0, result.output
    request = asked(control, "UpdateRecordRule")
    assert (request.name, request.options.expected_revision) == ("recordrules/m", 7)
    assert (request.record_rule.mirror.filter, request.record_rule.mirror.topic) == ("headers.x == 'y'", "orders")


def test_a_rule_of_the_other_kind_is_named(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetRecordRule"] = content_rule()
    result = meshctl("mirror", "show", "c")
    assert result.exit_code == 4
    assert "'c' is a content rule: see `meshctl content --help`" in result.output


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_rules_are_paused_and_resumed(control: ScriptedControl, meshctl: Meshctl, verb: str) -> None:
    method = f"{verb.capitalize()}RecordRule"
    control.answers[method] = mirror_rule()
    result = meshctl("mirror", verb, "m", "--expected-revision", "6", "--dry-run")
    assert result.exit_code == 0
    assert "checked only, nothing was changed" in result.output
    request = asked(control, method)
    assert (request.name, request.options.expected_revision, request.options.validate_only) == (
        "recordrules/m",
        6,
        True,
    )


def test_a_rule_begins_again_where_it_is_told(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["RewindRecordRule"] = mirror_rule()
    assert meshctl("mirror", "rewind", "m", "--to", "orders:0=500,1=480").exit_code == 0
    start = asked(control, "RewindRecordRule").start
    assert (start.offsets.topic, dict(start.offsets.offsets)) == ("orders", {0: 500, 1: 480})


def test_groups_are_translated_and_rules_removed(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["SyncGroupOffsets"] = record_rules.SyncGroupOffsetsResponse(revision=12)
    control.answers["RemoveRecordRule"] = record_rules.RemoveRecordRuleResponse(revision=13)
    result = meshctl("mirror", "sync-groups", "m", "--group", "billing")
    assert "offsets of billing are to be translated (revision 12)" in result.output
    assert list(asked(control, "SyncGroupOffsets").groups) == ["billing"]
    assert "m removed at revision 13" in meshctl("mirror", "remove", "m").output
    assert json.loads(meshctl("mirror", "remove", "m", "-o", "json").output) == {"revision": "13"}


def test_each_kind_is_listed_for_itself_over_all_pages(control: ScriptedControl, meshctl: Meshctl) -> None:
    def page(request: record_rules.ListRecordRulesRequest) -> record_rules.ListRecordRulesResponse:
        if not request.page_token:
            found = [
                content_rule(),
                mirror_rule(lag=42, partition_count=1, records_written=10, problem="c2 does not answer"),
            ]
            return record_rules.ListRecordRulesResponse(record_rules=found, next_page_token="m")
        return record_rules.ListRecordRulesResponse(record_rules=[mirror_rule("n")])

    control.answers["ListRecordRules"] = page
    shown = meshctl("mirror", "list").output
    [_, first, second] = shown.splitlines()
    assert " ".join(first.split()) == "m c1/orders -> c2/orders running r1 42 - 10 0 c2 does not answer"
    assert "no router has spoken of it yet" in second
    assert "c1/orders by content -> ones" in meshctl("content", "list").output
    listed = json.loads(meshctl("mirror", "list", "-o", "json").output)
    assert [each["name"] for each in listed["record_rules"]] == ["recordrules/m", "recordrules/n"]


def test_the_status_shows_both_kinds(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetStatus"] = admin.MeshStatus(record_rules=[content_rule(), mirror_rule(lag=3)])
    shown = meshctl("status").output
    assert "c1/orders by content -> ones" in shown
    assert "c1/orders -> c2/orders" in shown


def test_a_watch_looks_again_and_says_how_fast_it_goes(control: ScriptedControl, meshctl: Meshctl) -> None:
    looks = iter(range(100, 400, 100))

    def page(_: Any) -> record_rules.ListRecordRulesResponse:
        return record_rules.ListRecordRulesResponse(record_rules=[mirror_rule(records_written=next(looks), lag=5)])

    control.answers["ListRecordRules"] = page
    watched = meshctl("mirror", "list", "-w", "--interval", "0.1", "-n", "2")
    assert watched.exit_code == 0
    rows = [line.split() for line in watched.output.splitlines() if line.startswith("m ")]
    rates = [row[-3] for row in rows]
    assert rates[0] == "-"
    assert int(rates[1]) > 0
    once = meshctl("mirror", "list", "-w", "-n", "1", "-o", "json").output
    assert json.loads(once)["record_rules"][0]["progress"]["lag"] == "5"


def test_rates_begin_anew_with_another_router() -> None:
    moments = iter([10.0, 12.0, 14.0, 16.0])
    rates = Rates(lambda: next(moments))
    shown = [rates.of(mirror_rule(records_written=written)) for written in (100, 300, 20, 40)]
    assert shown == [None, 100.0, None, 10.0]


def test_one_rule_is_shown_with_its_partitions(control: ScriptedControl, meshctl: Meshctl) -> None:
    partition = record_rules.PartitionProgress(topic="orders", partition=3, position=90, end=100)
    control.answers["GetRecordRule"] = mirror_rule(
        revision=6, partitions=[partition], lag=10, partition_count=1, records_filtered=2
    )
    shown = meshctl("mirror", "show", "m").output
    assert "begins at:    the first record" in shown
    assert "r1, which carries out revision 6" in shown
    assert "0 written, 2 left out, 0 dead; 10 to go in 1 partitions" in shown
    assert "orders  3          90        100  10" in shown


def test_events_read_as_sentences() -> None:
    rewound = events.RecordRuleRewound(record_rule_id="m", start=start_at("orders:0=5"))
    ordered = events.GroupOffsetsSyncOrdered(record_rule_id="m")
    assert wording.event(events.Event(record_rule_rewound=rewound)) == "record rule m begins again at orders from 0=5"
    assert "offsets of all groups" in wording.event(events.Event(group_offsets_sync_ordered=ordered))
    created = events.RecordRuleCreated(rule=mirror_rule().spec)
    assert wording.event(events.Event(record_rule_created=created)) == "record rule m created: c1/orders -> c2/orders"


@pytest.mark.parametrize(
    "command", ["create", "update", "list", "show", "pause", "resume", "rewind", "remove", "sync-groups"]
)
def test_each_command_shows_examples(meshctl: Meshctl, command: str) -> None:
    assert f"meshctl mirror {command}" in meshctl("mirror", command, "--help").output
