"""Looking back, going back, and files of a whole mesh, with a real control. One mesh, told as one story per test.

The commands run in this process, which starts no interpreter for each: `test_operating.py` runs them as a program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from meshctl.cli import cli
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import create_topic

Meshctl = Callable[..., Result]


def as_json(meshctl: Meshctl, *arguments: str) -> Any:
    return json.loads(meshctl(*arguments, "-o", "json").stdout)


@pytest.fixture
def meshctl(control: str) -> Meshctl:
    """`meshctl("rule", "list")`; `check=False` where an error is expected."""

    def run(*arguments: str, check: bool = True) -> Result:
        done = CliRunner().invoke(cli, arguments, env={"MESHCTL_ADDRESS": control, "USER": "ada"})
        assert not check or done.exit_code == 0, f"meshctl {' '.join(arguments)}: exit {done.exit_code}\n{done.output}"
        return done

    return run


@pytest.fixture
def clusters(meshctl: Meshctl, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> None:
    """kafka_c1 and kafka_c2 are registered."""
    registered = {each["spec"]["cluster_name"] for each in as_json(meshctl, "cluster", "list")["clusters"]}
    for name, cluster in (("kafka_c1", kafka_c1), ("kafka_c2", kafka_c2)):
        if name not in registered:
            meshctl("cluster", "register", name, cluster.bootstrap)


def revision_of(meshctl: Meshctl, *arguments: str) -> int:
    return int(as_json(meshctl, *arguments)["revision"])


def test_a_topic_is_explained_looked_back_at_and_brought_back(
    meshctl: Meshctl, clusters: None, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("orders")
    create_topic(kafka_c1.bootstrap, topic, 2)
    made = as_json(meshctl, "rule", "set", "--topic", topic, "--to", "kafka_c1")
    first, rule_id = int(made["revision"]), made["rules"][0]["spec"]["rule_id"]
    to_c2 = ("rule", "set", "--topic", topic, "--to", "kafka_c2", "--create-topics", "--reason", "nearer")
    second = revision_of(meshctl, *to_c2)
    told = meshctl("explain", topic).stdout
    assert f"says so since revision {second}" in told
    assert "by ada@" in told
    assert len(as_json(meshctl, "explain", topic)["live_partitions"]) == 2

    newest, oldest = as_json(meshctl, "history", topic)["entries"]
    assert (newest["place"], newest["reason"], newest["changes"][0].partition(": ")[2]) == (
        "kafka_c2",
        "nearer",
        "target_cluster kafka_c1 -> kafka_c2",
    )
    assert (oldest["place"], int(oldest["revision"])) == ("kafka_c1", first)
    assert "target_cluster kafka_c1 -> kafka_c2" in meshctl("history", topic).stdout

    shown = meshctl("diff", str(first), str(second)).stdout
    assert f"topic {topic}: kafka_c1 -> kafka_c2 (2 partitions)" in shown
    assert f"Revision {first} to {second}: 1 changed; 1 topic elsewhere." in shown

    checked = meshctl("revert", str(first), "--dry-run").stdout
    assert f"topic {topic} would move from kafka_c2 to kafka_c1" in checked
    meshctl("revert", str(first), "--reason", "consumers lag")
    assert as_json(meshctl, "explain", topic)["cluster"] == "kafka_c1"
    meshctl("revert", "--last")
    assert as_json(meshctl, "explain", topic)["cluster"] == "kafka_c2"
    assert f"the rules of revision {first} are back" in meshctl("history", "--rule", rule_id).stdout
    meshctl("rule", "remove", "--topic", topic)


def test_what_cannot_be_looked_at_or_brought_back_is_said(meshctl: Meshctl, clusters: None) -> None:
    for arguments in (("diff", "1", "99999"), ("revert", "99999"), ("export", "--as-of", "99999")):
        refused = meshctl(*arguments, check=False)
        assert refused.exit_code == 2
        assert "still to come" in refused.stderr
    early = meshctl("export", "--as-of", "2001-01-01T00:00:00Z", check=False)
    assert "before all that is known" in early.stderr


def test_a_mesh_is_exported_compared_changed_and_pruned_back(
    meshctl: Meshctl, clusters: None, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Any
) -> None:
    some, rest, group = unique_name("some"), unique_name("rest"), unique_name("shop")
    create_topic(kafka_c1.bootstrap, some, 1)
    added = f"""\
rules:
- {{topic: {some}, target_cluster: kafka_c2, client: {{client_id_prefix: shop-, source_networks: [10.1.0.0/16]}}}}
- {{topic: {some}, target_cluster: kafka_c1}}
- {{group_prefix: {group}, target_cluster: kafka_c1}}
- {{unmatched_topics: true, target_cluster: kafka_c2}}
record_rules:
- record_rule_id: {rest[-40:].strip("-")}
  mirror: {{source_cluster: kafka_c1, target_cluster: kafka_c2, topic: {some}, target_topic: 'copy.{{topic}}'}}
"""
    before, file = tmp_path / "before.yaml", tmp_path / "added.yaml"
    before.write_text(meshctl("export").stdout)
    file.write_text(added)
    revision = int(as_json(meshctl, "status")["last_position"])

    assert "Plan: 5 to add, 0 to change, 0 to remove." in meshctl("diff", "-f", str(file)).stdout
    applied = meshctl("apply", "-f", str(file), "--allow-unreachable").stdout
    assert "the mesh is as the file says" in applied
    again = meshctl("apply", "-f", str(file)).stdout
    assert "Plan: 0 to add, 0 to change, 0 to remove; 5 as the file says already." in again
    assert "nothing to change" in again

    whole = tmp_path / "whole.yaml"
    whole.write_text(meshctl("export").stdout)
    assert "nothing to change" in meshctl("apply", "-f", str(whole), "--prune").stdout
    kept = meshctl("apply", "-f", str(before), "--dry-run").stdout
    assert "0 to remove" in kept
    assert yaml.safe_load(meshctl("export", "--as-of", str(revision)).stdout) == yaml.safe_load(before.read_text())
    back = meshctl("apply", "-f", str(before), "--prune", "--allow-unreachable").stdout
    assert "5 to remove" in back
    assert yaml.safe_load(meshctl("export").stdout) == yaml.safe_load(before.read_text())


def test_pruning_removes_a_cluster_that_the_file_does_not_name(
    meshctl: Meshctl, clusters: None, unique_name: Callable[[str], str], tmp_path: Any
) -> None:
    name = unique_name("spare")[:60].strip("-")
    file = tmp_path / "mesh.yaml"
    file.write_text(meshctl("export").stdout)
    meshctl("cluster", "register", name, "127.0.0.1:1", "--allow-unreachable")
    meshctl("rule", "add", "--topic", name, "--to", name)
    meshctl("apply", "-f", str(file))
    assert name in meshctl("cluster", "list").stdout
    told = meshctl("apply", "-f", str(file), "--prune", "--allow-unreachable").stdout
    assert "0 to add, 0 to change, 2 to remove" in told
    assert name not in meshctl("cluster", "list").stdout
