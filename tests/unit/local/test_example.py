"""The example of a new mesh against a scripted control: what it decides at a first start, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from local import example
from mesh.rpc import admin, events, routing
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

CLUSTERS = {"c1": "a:1", "c2": "b:2"}


@pytest.fixture
def control() -> Iterator[ScriptedControl]:
    server = ScriptedControl()
    server.answers["ListClusters"] = admin.ListClustersResponse(
        clusters=[registered(*each) for each in CLUSTERS.items()]
    )
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """Topics that were made: bootstrap servers and names."""
    topics: list[tuple[str, tuple[str, ...]]] = []
    monkeypatch.setattr(example, "create_topics", lambda bootstrap, names: topics.append((bootstrap, names)))
    return topics


def registered(name: str, address: str) -> admin.Cluster:
    return admin.Cluster(
        name=f"clusters/{name}", spec=routing.ClusterSpec(cluster_name=name, bootstrap_servers=[address])
    )


def decided(*changes: events.RuleChange) -> admin.ListEventsResponse:
    return admin.ListEventsResponse(events=[events.Event(rule_set_changed=events.RuleSetChanged(changes=changes))])


def added(prefix: str) -> events.RuleChange:
    match = routing.RuleMatch(topic_prefix=prefix)
    return events.RuleChange(created=routing.RuleSpec(rule_id=prefix, match=match, target_cluster="c1"))


def rules_set(control: ScriptedControl) -> list[tuple[str, str]]:
    return [(each.match.topic_prefix, each.target_cluster) for each in control.requests("SetRule")]


def test_a_new_mesh_gets_clusters_topics_and_rules(
    control: ScriptedControl, made: list[tuple[str, tuple[str, ...]]]
) -> None:
    control.answers["ListClusters"] = admin.ListClustersResponse()
    example.set_up(control.address, CLUSTERS)
    assert [each.spec.cluster_name for each in control.requests("RegisterCluster")] == ["c1", "c2"]
    topics = ("apples", "bananas", "sidecar-audit")
    assert made == [("a:1", topics), ("b:2", topics)]
    assert rules_set(control) == [("apples", "c1"), ("bananas", "c2"), ("sidecar-audit", "c1")]


def test_a_mesh_without_the_example_knows_its_clusters_alone(
    control: ScriptedControl, made: list[tuple[str, tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    control.answers["ListClusters"] = admin.ListClustersResponse()
    monkeypatch.setattr("sys.argv", ["example", "--control", control.address, "--parts", "clusters", "c1=a:1;c2=b:2"])
    assert example.main() == 0
    assert [each.spec.cluster_name for each in control.requests("RegisterCluster")] == ["c1", "c2"]
    assert not rules_set(control)
    assert not made


def test_an_interrupted_first_start_is_finished(control: ScriptedControl) -> None:
    control.answers["ListEvents"] = decided(added("apples"), added("sidecar-audit"))
    example.set_up(control.address, CLUSTERS)
    assert rules_set(control) == [("bananas", "c2")]


def test_rules_that_were_removed_stay_away(control: ScriptedControl, made: list[tuple[str, tuple[str, ...]]]) -> None:
    removed = events.RuleChange(removed="apples")
    control.answers["ListEvents"] = decided(added("apples"), added("bananas"), added("sidecar-audit"), removed)
    example.set_up(control.address, CLUSTERS)
    assert not rules_set(control)
    assert not made


def test_a_cluster_that_moved_is_told(control: ScriptedControl) -> None:
    control.answers["ListEvents"] = decided(added("apples"), added("bananas"), added("sidecar-audit"))
    example.set_up(control.address, CLUSTERS | {"c2": "c:3"})
    (update,) = control.requests("UpdateCluster")
    assert (update.name, list(update.spec.bootstrap_servers)) == ("clusters/c2", ["c:3"])


def test_a_refusal_is_one_sentence(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    control.answers["ListClusters"] = Refusal(grpc.StatusCode.UNAVAILABLE, "the log can't be written")
    monkeypatch.setattr("sys.argv", ["example", "--control", control.address, "c1=a:1;c2=b:2"])
    assert example.main() == 1
    assert capsys.readouterr().err == f"control at {control.address} refused the example: the log can't be written\n"


def test_a_certificate_that_can_not_be_read_is_named(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["example", "--control", control.address, "--tls-folder", "/nowhere", "c1=a:1"])
    assert example.main() == 1
    assert capsys.readouterr().err == "/nowhere/tls.crt: No such file or directory\n"


def test_a_mesh_that_has_other_names_for_the_clusters_is_left_alone(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    control.answers["ListClusters"] = admin.ListClustersResponse(clusters=[registered("kafka_c1", "a:1")])
    control.answers["RegisterCluster"] = Refusal(grpc.StatusCode.ALREADY_EXISTS, "registered as 'kafka_c1'")
    monkeypatch.setattr("sys.argv", ["example", "--control", control.address, "c1=a:1;c2=b:2"])
    assert example.main() == 0
    assert capsys.readouterr().out == "the example is left out: registered as 'kafka_c1'\n"
    assert not rules_set(control)
