"""Files that say all of a mesh: written, read again, pruned by, compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from mesh.rpc import admin, record_rules, routing
from meshctl.meshfile import writing
from meshctl.meshfile.acl_plan import NO_POLICY
from meshctl.meshfile.action import Action
from meshctl.meshfile.model import FileError
from meshctl.meshfile.plan import Plan, make
from meshctl.meshfile.reading import parse
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
TOPIC, GROUP = routing.RuleMatch(topic="orders"), routing.RuleMatch(group_prefix="shop-")
OF_SOME = routing.RuleMatch(
    topic="orders", client=routing.ClientMatch(principal="User:ada", source_networks=["10.1.0.0/16"])
)
REST = routing.RuleMatch(unmatched_topics=True)


def cluster(name: str, config: dict[str, str] | None = None, *, home: bool = False) -> admin.Cluster:
    spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=[f"{name}:9092"], producer_config=config)
    return admin.Cluster(name=f"clusters/{name}", spec=spec, revision=7, home=home)


def rule(rule_id: str, match: routing.RuleMatch, target: str = "c1", **fields: Any) -> admin.Rule:
    spec = routing.RuleSpec(rule_id=rule_id, match=match, target_cluster=target, **fields)
    return admin.Rule(name=f"rules/{rule_id}", spec=spec)


def mirror(rule_id: str, topic: str = "orders") -> record_rules.RecordRule:
    spec = record_rules.MirrorSpec(
        source_cluster="c1", target_cluster="c2", topic=topic, filter='headers.country == "de"',
        transforms=[record_rules.Transform(redact_json_field="card.number")],
    )  # fmt: skip
    start = record_rules.StartAt()
    start.time.FromJsonString("2026-05-01T02:00:00Z")
    made = record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=spec, start=start)
    return record_rules.RecordRule(name=f"recordrules/{rule_id}", spec=made, revision=9)


def content(rule_id: str) -> record_rules.RecordRule:
    branch = record_rules.ContentBranch(when="value.kind == 'a'", target=record_rules.RecordTarget(topic="a"))
    spec = record_rules.ContentRuleSpec(
        source_cluster="c1", topic="all", branches=[branch], value_format=record_rules.VALUE_FORMAT_AVRO
    )
    offsets = record_rules.PartitionOffsets(topic="all", offsets={0: 5, 1: 7})
    start = record_rules.StartAt(offsets=offsets)
    made = record_rules.RecordRuleSpec(record_rule_id=rule_id, content=spec, start=start)
    return record_rules.RecordRule(name=f"recordrules/{rule_id}", spec=made, revision=9)


CLUSTERS = [cluster("c1", home=True), cluster("c2", {"sasl.password": "${env:C2}", "acks": "1", "retries": "3"})]
RULES = [
    rule("some", OF_SOME, "c2"),
    rule("orders", TOPIC, upstream_topic="shop.{topic}"),
    rule("shop", GROUP, shadow_topics=True),
    rule("pay", routing.RuleMatch(transactional_id_regex="pay-[0-9]+"), span_clusters=True),
    rule("js", routing.RuleMatch(client_software_prefix="kafkajs/"), "", node_view=routing.NODE_VIEW_SINGLE),
    rule("rest", REST, "c2"),
]
RECORD_RULES = [content("by-kind"), mirror("copy")]


def plan(text: str, **of: Any) -> Plan:
    mesh: dict[str, Any] = {"clusters": CLUSTERS, "rules": RULES, "record_rules": RECORD_RULES, **of}
    return make(parse(text), rules_revision=3, members=(), **mesh)


def steps(of: Plan) -> list[str]:
    return [f"{action} {kind} {name}" for action, kind, name, _ in of.steps if action is not Action.UNCHANGED]


EXPORTED = writing.text(writing.document(CLUSTERS, RULES, RECORD_RULES, NO_POLICY, []))


def test_what_was_exported_changes_nothing_where_it_came_from() -> None:
    assert plan(EXPORTED, prune=True).changes_nothing
    assert plan(EXPORTED).changes_nothing


def test_what_was_exported_makes_the_same_mesh_elsewhere() -> None:
    made = plan(EXPORTED, clusters=[], rules=[], record_rules=[])
    assert [step.spec for step in made.clusters] == [each.spec for each in CLUSTERS]
    assert list(made.rule_set) == [each.spec for each in RULES]
    assert [step.spec for step in made.record_rules] == [each.spec for each in RECORD_RULES]


def test_nothing_is_removed_without_being_asked() -> None:
    empty = "clusters: []\nrules: []\nrecord_rules: []\n"
    assert steps(plan(empty)) == []
    gone = steps(plan(empty, prune=True))
    assert gone == [
        *(f"remove rule {each.spec.rule_id}" for each in RULES),
        "remove record rule by-kind",
        "remove record rule copy",
        "remove cluster c2",  # last, and never the home cluster
    ]


def test_pruning_concerns_only_sections_that_the_file_has() -> None:
    assert steps(plan("record_rules: []\n", prune=True)) == ["remove record rule by-kind", "remove record rule copy"]


def test_rules_about_some_clients_are_rules_of_their_own() -> None:
    text = """\
rules:
- {topic: orders, target_cluster: c1, client: {principal: 'User:ada', source_networks: [10.1.128.0/17, 10.1.0.0/17]}}
- {topic: orders, target_cluster: c1, client: {software_name: librdkafka}}
"""
    changed, new = plan(text).rules
    assert (changed.action, changed.spec.rule_id, new.action) == (Action.UPDATE, "some", Action.CREATE)


def test_the_default_cluster_stands_last_wherever_a_file_has_it() -> None:
    text = "rules:\n- {unmatched_topics: true, target_cluster: c2}\n- {topic: pears, target_cluster: c1}\n"
    assert [each.match.WhichOneof("kind") for each in plan(text, replace=True).rule_set] == [
        "topic",
        "unmatched_topics",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("record_rules:\n- {mirror: {source_cluster: c1}}\n", "line 2: record_rules[0]: record_rule_id is missing"),
        ("record_rules:\n- {record_rule_id: m}\n", "Expected one of mirror, content"),
        ("record_rules:\n- {record_rule_id: m, mirror: {sorce: c1}}\n", 'no field named "sorce"'),
        ("record_rules: [m]\n", "expected a mapping"),
        ("rules:\n- {topic: a, target_cluster: c1, client: {}}\n", "client: says nothing"),
        ("rules:\n- {topic: a, target_cluster: c1, client: {source_networks: [x]}}\n", "expected an address"),
        ("rules:\n- {topic: a, target_cluster: c1, client: {principle: x}}\n", "did you mean principal?"),
    ],
)
def test_slips_are_named_with_their_place(text: str, says: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(text)
    assert says in str(caught.value)


@pytest.fixture
def mesh(control: ScriptedControl) -> ScriptedControl:
    control.answers |= {
        "ListClusters": admin.ListClustersResponse(clusters=CLUSTERS),
        "ListRules": admin.ListRulesResponse(rules=RULES, revision=3),
        "ListRecordRules": record_rules.ListRecordRulesResponse(record_rules=RECORD_RULES),
    }
    return control


def changes(control: ScriptedControl) -> list[str]:
    reads = ("List", "Get")
    return [call.method for call in control.calls if not call.method.startswith(reads)]


def test_export_writes_what_apply_reads(mesh: ScriptedControl, meshctl: Meshctl) -> None:
    assert meshctl("export").output == EXPORTED
    assert json.loads(meshctl("export", "-o", "json").output)["rules"][0]["client"]["principal"] == "User:ada"
    applied = meshctl("apply", "-f", "-", "--prune", stdin=EXPORTED)
    *notes, counted, outcome = applied.output.splitlines()
    assert counted == "Plan: 0 to add, 0 to change, 0 to remove; 11 as the file says already."
    assert outcome == "nothing to change"
    assert all(note.startswith("note: ") for note in notes)
    assert changes(mesh) == []


def test_export_of_the_past(mesh: ScriptedControl, meshctl: Meshctl) -> None:
    mesh.answers["GetAsOf"] = admin.MeshAsOf(clusters=CLUSTERS[:1])
    assert "c2" not in meshctl("export", "--as-of", "41").output
    meshctl("export", "--as-of", "2026-05-01T02:00:00+02:00")
    revision, time = mesh.requests("GetAsOf")
    assert revision.revision == 41
    assert time.time.ToJsonString() == "2026-05-01T00:00:00Z"
    assert meshctl("export", "--as-of", "yesterday").exit_code == 2
    assert meshctl("export", "--as-of", "2026-05-01T02:00:00").exit_code == 2


def test_a_plan_is_shown_as_terraform_shows_one_and_carried_out_in_order(
    mesh: ScriptedControl, meshctl: Meshctl
) -> None:
    text = """\
clusters:
- {cluster_name: c1, bootstrap_servers: 'new:1'}
- {cluster_name: c3, bootstrap_servers: 'c3:1'}
rules:
- {topic: orders, target_cluster: c3}
record_rules:
- {record_rule_id: copy, mirror: {source_cluster: c1, target_cluster: c3, topic: orders}}
"""
    result = meshctl("apply", "-f", "-", "--prune", stdin=text)
    assert result.exit_code == 0, result.output
    assert "~ cluster c1           bootstrap_servers c1:9092 -> new:1" in result.output
    assert "+ cluster c3           c3:1" in result.output
    assert "- rule shop            group prefix shop- -> c1 with shadow topics" in result.output
    assert "- record rule by-kind  " in result.output
    assert "Plan: 1 to add, 3 to change, 7 to remove." in result.output
    assert changes(mesh) == [
        "UpdateCluster", "RegisterCluster",  # checked first; the mirror can't be, before c3 is there
        "UpdateCluster", "RegisterCluster", "ReplaceRules", "UpdateRecordRule", "RemoveRecordRule", "RemoveCluster",
    ]  # fmt: skip
    (removed,) = mesh.requests("RemoveCluster")
    assert (removed.name, removed.expected_revision) == ("clusters/c2", 7)


def test_a_file_is_compared_without_changing_anything(mesh: ScriptedControl, meshctl: Meshctl) -> None:
    text = "rules:\n- {topic: pears, target_cluster: c1}\n"
    result = meshctl("diff", "-f", "-", stdin=text)
    assert result.output == "+ rule (new)  topic pears -> c1\nPlan: 1 to add, 0 to change, 0 to remove.\n"
    document = json.loads(meshctl("diff", "-f", "-", "--prune", "-o", "json", stdin=text).output)
    assert [each["action"] for each in document["plan"]["rules"]] == ["create"] + ["remove"] * 6
    assert changes(mesh) == []
