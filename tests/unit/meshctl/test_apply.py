"""`meshctl apply`: what control is asked, in which order, and what is not asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from click.testing import Result
from google.rpc import error_details_pb2

from mesh.rpc import admin, routing
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

Meshctl = Callable[..., Result]
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "envoy-kafka-mesh.yaml")
LOCAL = (
    "--bootstrap",
    "kafka_c1=127.0.0.1:1",
    "--bootstrap",
    "kafka_c2=127.0.0.1:2",
    "--bootstrap",
    "kafka_c3=127.0.0.1:3",
)


class Mesh:
    """Just enough of a mesh to apply to: it keeps what it is told."""

    def __init__(self, control: ScriptedControl) -> None:
        self.clusters: list[admin.Cluster] = []
        self.rules: list[admin.Rule] = []
        control.answers |= {
            "ListClusters": lambda _: admin.ListClustersResponse(clusters=self.clusters),
            "ListRules": lambda _: admin.ListRulesResponse(rules=self.rules, revision=12),
            "RegisterCluster": self.register,
            "ReplaceRules": self.replace,
        }

    def register(self, request: admin.RegisterClusterRequest) -> admin.Cluster:
        cluster = admin.Cluster(name=f"clusters/{request.spec.cluster_name}", spec=request.spec)
        if not request.validate_only:
            self.clusters.append(cluster)
        return cluster

    def replace(self, request: admin.ReplaceRulesRequest) -> admin.RuleChangeResponse:
        rules = [admin.Rule(name=f"rules/{n}", spec=spec, place=n) for n, spec in enumerate(request.rules, start=1)]
        if not request.options.validate_only:
            self.rules = rules
        return admin.RuleChangeResponse(revision=13, rules=rules)


@pytest.fixture
def mesh(control: ScriptedControl) -> Mesh:
    return Mesh(control)


def methods(control: ScriptedControl) -> list[str]:
    reads = ("ListClusters", "ListRules", "GetStatus")
    return [call.method for call in control.calls if call.method not in reads]


def test_the_example_is_checked_whole_then_registered_then_routed(
    control: ScriptedControl, meshctl: Meshctl, mesh: Mesh
) -> None:
    result = meshctl("apply", "-f", EXAMPLE, *LOCAL, "--replace", "--reason", "seed")
    assert result.exit_code == 0, result.output
    assert methods(control) == ["RegisterCluster"] * 6 + ["ReplaceRules"]
    assert [each.validate_only for each in control.requests("RegisterCluster")] == [True] * 3 + [False] * 3
    assert [list(each.spec.bootstrap_servers) for each in mesh.clusters] == [[f"127.0.0.1:{n}"] for n in (1, 2, 3)]
    (rules,) = control.requests("ReplaceRules")
    assert [each.match.topic_prefix for each in rules.rules] == ["apples", "bananas", "cherries"]
    assert (rules.options.expected_revision, rules.options.reason) == (12, "seed")
    assert "note: line 24: kafka_c3 acks: does not touch passing traffic" in result.output
    assert "note: line 4: listener 127.0.0.1:19092: no gateway is connected" in result.output


def test_applying_again_asks_for_nothing(control: ScriptedControl, meshctl: Meshctl, mesh: Mesh) -> None:
    meshctl("apply", "-f", EXAMPLE, *LOCAL, "--replace")
    control.calls.clear()
    result = meshctl("apply", "-f", EXAMPLE, *LOCAL, "--replace")
    assert methods(control) == []
    assert "nothing to change" in result.output


def test_a_dry_run_changes_nothing(control: ScriptedControl, meshctl: Meshctl, mesh: Mesh) -> None:
    result = meshctl("apply", "-f", EXAMPLE, "--dry-run", "--replace")
    assert result.exit_code == 0
    assert methods(control) == ["RegisterCluster"] * 3
    assert not mesh.clusters
    assert "only when their clusters are registered; nothing was changed" in result.output


def test_a_dry_run_lets_control_check_rules_of_registered_clusters(
    control: ScriptedControl, meshctl: Meshctl, mesh: Mesh
) -> None:
    meshctl("apply", "-f", EXAMPLE)
    control.calls.clear()
    meshctl("apply", "-f", "-", "--dry-run", stdin="rules: [{topic: plums, target_cluster: kafka_c1}]\n")
    (request,) = control.requests("ReplaceRules")
    assert request.options.validate_only
    assert [each.match.WhichOneof("kind") for each in request.rules] == ["topic_prefix"] * 3 + ["topic"]


def test_a_file_with_errors_asks_nothing_and_names_them_all(control: ScriptedControl, meshctl: Meshctl) -> None:
    result = meshctl("apply", "-f", "-", stdin="rules: [{topic: a}]\nclutsers: []\n")
    assert result.exit_code == 2
    assert "nothing was changed" in result.stderr
    assert "line 1: rules[0]: target_cluster is missing" in result.stderr
    assert "line 2: clutsers: unknown key; did you mean clusters?" in result.stderr
    assert not control.calls


def test_all_clusters_that_control_refuses_are_named_and_none_is_registered(
    control: ScriptedControl, meshctl: Meshctl, mesh: Mesh
) -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="spec.producer_config[acsk]", description="no such property")

    def refuse(request: admin.RegisterClusterRequest) -> admin.Cluster | Refusal:
        if request.spec.cluster_name == "kafka_c2":
            return admin.Cluster()
        return Refusal(grpc.StatusCode.INVALID_ARGUMENT, "its configuration is not right", (bad,))

    control.answers["RegisterCluster"] = refuse
    result = meshctl("apply", "-f", EXAMPLE)
    assert result.exit_code == 2
    assert "kafka_c1: its configuration is not right" in result.stderr
    assert "kafka_c3 spec.producer_config[acsk]: no such property" in result.stderr
    assert all(each.validate_only for each in control.requests("RegisterCluster"))
    assert "ReplaceRules" not in methods(control)


def test_a_failure_half_way_names_what_was_done(control: ScriptedControl, meshctl: Meshctl, mesh: Mesh) -> None:
    def second_fails(request: admin.RegisterClusterRequest) -> admin.Cluster | Refusal:
        if request.spec.cluster_name == "kafka_c2" and not request.validate_only:
            return Refusal(grpc.StatusCode.ABORTED, "somebody was faster")
        return mesh.register(request)

    control.answers["RegisterCluster"] = second_fails
    result = meshctl("apply", "-f", EXAMPLE)
    assert result.exit_code == 5
    assert "meshctl: somebody was faster\n  changed before that: kafka_c1; apply the file again" in result.stderr
    assert "ReplaceRules" not in methods(control)


def test_a_registered_cluster_that_differs_is_updated_field_by_field(
    control: ScriptedControl, meshctl: Meshctl, mesh: Mesh
) -> None:
    old = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=["old:1"], partition_count=2)
    mesh.clusters.append(admin.Cluster(name="clusters/c1", spec=old, revision=5))
    text = "clusters: [{cluster_name: c1, bootstrap_servers: 'new:1', partition_count: 2}]\n"
    result = meshctl("apply", "-f", "-", "--allow-unreachable", stdin=text)
    assert result.exit_code == 0, result.output
    check, update = control.requests("UpdateCluster")
    assert check.validate_only
    assert (list(update.update_mask.paths), update.expected_revision) == (["bootstrap_servers"], 5)
    assert update.allow_unreachable


def test_json_tells_plan_notices_and_result(meshctl: Meshctl, mesh: Mesh) -> None:
    document = json.loads(meshctl("apply", "-f", EXAMPLE, "--replace", "-o", "json").stdout)
    assert [each["action"] for each in document["plan"]["clusters"]] == ["create"] * 3
    assert document["plan"]["rules"][0]["rule"]["target_cluster"] == "kafka_c1"
    assert {each["line"] for each in document["notices"]} >= {24, 25, 27}
    assert document["rule_change"]["revision"] == "13"
    assert len(document["clusters"]) == 3


@pytest.mark.parametrize("override", ["kafka_c1", "=a:1", "kafka_c1=", "kafka_c1=host", "kafka_c9=a:1"])
def test_an_override_that_fits_nothing_is_wrong_usage(
    control: ScriptedControl, meshctl: Meshctl, override: str
) -> None:
    assert meshctl("apply", "-f", EXAMPLE, "--bootstrap", override).exit_code == 2
    assert not control.calls


def test_a_file_that_is_not_there_is_wrong_usage(meshctl: Meshctl) -> None:
    assert meshctl("apply", "-f", "/nowhere.yaml").exit_code == 2


def test_apply_waits_for_gateways_and_goes_on_without_some(
    control: ScriptedControl, meshctl: Meshctl, mesh: Mesh
) -> None:
    meshctl("apply", "-f", EXAMPLE)
    rules = "rules: [{topic: plums, target_cluster: kafka_c1}]\n"
    assert meshctl("apply", "-f", "-", "--wait", "--without", "gw-2", stdin=rules).exit_code == 0
    [*_, request] = control.requests("ReplaceRules")
    assert list(request.options.without_members) == ["gw-2"]
    assert request.options.wait_for == admin.WAIT_FOR_ALL_MEMBERS
