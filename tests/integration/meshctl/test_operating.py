"""An operator's day with a real control: clusters, rules, files, questions. One mesh, told as one story per test."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

Meshctl = Callable[..., subprocess.CompletedProcess[str]]
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "envoy-kafka-mesh.yaml")


def as_json(meshctl: Meshctl, *arguments: str) -> Any:
    return json.loads(meshctl(*arguments, "-o", "json").stdout)


@pytest.fixture
def clusters(meshctl: Meshctl, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> None:
    """kafka_c1 and kafka_c2 of the example are registered, at the addresses of real ones."""
    registered = {each["spec"]["cluster_name"] for each in as_json(meshctl, "cluster", "list")["clusters"]}
    for name, cluster in (("kafka_c1", kafka_c1), ("kafka_c2", kafka_c2)):
        if name not in registered:
            meshctl("cluster", "register", name, cluster.bootstrap)


def test_a_cluster_is_connected_to_before_it_is_registered(
    meshctl: Meshctl, clusters: None, kafka_c1: KafkaCluster
) -> None:
    listed = as_json(meshctl, "cluster", "list")["clusters"]
    assert [each["home"] for each in listed if each["spec"]["cluster_name"] == "kafka_c1"] == [True]
    assert "answered in" in meshctl("cluster", "test", "--bootstrap", kafka_c1.bootstrap).stdout
    nobody = meshctl("cluster", "register", "gone", "127.0.0.1:1", check=False)
    assert nobody.returncode == 3
    assert "give --allow-unreachable" in nobody.stderr


def test_a_wrong_property_is_named_at_registration(meshctl: Meshctl, kafka_c2: KafkaCluster) -> None:
    wrong = meshctl("cluster", "register", "x", kafka_c2.bootstrap, "--producer-config", "acsk=1", check=False)
    assert wrong.returncode == 2
    assert "[acsk]: is not served" in wrong.stderr
    assert "did you mean acks?" in wrong.stderr


def test_a_rule_is_set_explained_moved_and_removed(
    meshctl: Meshctl, clusters: None, unique_name: Callable[[str], str]
) -> None:
    first, second = unique_name("pears"), unique_name("plums")
    meshctl("rule", "add", "--prefix", first, "--to", "kafka_c1", "--reason", "harvest")
    meshctl("rule", "add", "--topic", second, "--to", "kafka_c1")
    meshctl("rule", "move", "--topic", second, "--first")
    assert as_json(meshctl, "rule", "list")["rules"][0]["spec"]["match"] == {"topic": second}
    meshctl("rule", "set", "--prefix", first, "--to", "kafka_c2")
    assert as_json(meshctl, "explain", f"{first}-1")["cluster"] == "kafka_c2"
    meshctl("rule", "remove", "--prefix", first)
    assert as_json(meshctl, "explain", f"{first}-1")["cluster"] == ""
    reasons = {(each["reason"], each["actor"].split("@")[0]) for each in as_json(meshctl, "history")["entries"]}
    assert ("harvest", "ada") in reasons
    meshctl("rule", "remove", "--topic", second)


def test_rules_about_groups_ids_and_clients(
    meshctl: Meshctl, clusters: None, unique_name: Callable[[str], str]
) -> None:
    shop = unique_name("shop")
    meshctl("rule", "add", "--group-prefix", shop, "--to", "kafka_c2", "--shadow-topics")
    meshctl("rule", "set", "--transactional-id", shop, "--to", "kafka_c1")
    meshctl("rule", "set", "--client-software", f"{shop}/1", "--nodes", "single")
    meshctl("rule", "set", "--topic", shop, "--to", "kafka_c1", "--upstream-topic", "tenant.{topic}")
    meshctl("rule", "set", "--topic", shop, "--to", "kafka_c2")
    assert f"group {shop}-1 is coordinated by kafka_c2" in meshctl("explain", "--group", f"{shop}-1").stdout
    assert "coordinated by kafka_c1" in meshctl("explain", "--transactional-id", shop).stdout
    assert "is shown a single node" in meshctl("explain", "--client-software", f"{shop}/1").stdout
    assert f"{shop} lives on kafka_c2 as tenant.{shop}" in meshctl("explain", shop).stdout
    for option in ("--group-prefix", "--transactional-id", "--topic"):
        meshctl("rule", "remove", option, shop)
    meshctl("rule", "remove", "--client-software", f"{shop}/1")


def test_refusals_have_their_exit_codes(meshctl: Meshctl, clusters: None, unique_name: Callable[[str], str]) -> None:
    prefix = unique_name("figs")
    meshctl("rule", "add", "--prefix", prefix, "--to", "kafka_c1")
    unknown_target = meshctl("rule", "set", "--prefix", prefix, "--to", "nowhere", check=False)
    shadowed = meshctl("rule", "add", "--topic", f"{prefix}-1", "--to", "kafka_c2", check=False)
    absent = meshctl("rule", "remove", "nothing-of-the-kind", check=False)
    outdated = meshctl("rule", "remove", "--prefix", prefix, "--expected-revision", "1", check=False)
    assert [each.returncode for each in (unknown_target, shadowed, absent, outdated)] == [1, 1, 4, 5]
    assert "known: kafka_c1, kafka_c2" in unknown_target.stderr
    meshctl("rule", "remove", "--prefix", prefix)


def test_who_was_refused_is_on_record(meshctl: Meshctl, clusters: None, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("figs")
    meshctl("rule", "set", "--topic", topic, "--to", "nowhere", "--reason", "no such place", check=False)

    printed = meshctl("audit", "--refused", "--by", "ada").stdout
    [line] = [each for each in printed.splitlines() if topic in each] or [printed]
    assert "SetRule" in line
    assert "failed precondition" in line
    assert "no such place" in line

    [event, *_] = json.loads(meshctl("audit", "-n", "1", "-o", "json").stdout)["audit_events"]
    assert event["actor"].startswith("ada@")
    assert (event["code"], event["resource"]) == ("FAILED_PRECONDITION", f"rules with topic {topic}")


def test_the_envoy_example_is_applied_as_it_stands(
    meshctl: Meshctl, clusters: None, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    where = [
        *("--bootstrap", f"kafka_c1={kafka_c1.bootstrap}"),
        *("--bootstrap", f"kafka_c2={kafka_c2.bootstrap}"),
        *("--bootstrap", "kafka_c3=127.0.0.1:1"),
    ]
    refused = meshctl("apply", "-f", EXAMPLE, *where, "--replace", check=False)
    assert refused.returncode == 3
    assert "kafka_c3" in refused.stderr
    assert "nothing was changed" in refused.stderr
    applied = meshctl("apply", "-f", EXAMPLE, *where, "--replace", "--allow-unreachable", "--create-topics")
    assert "kafka_c3 acks: does not touch passing traffic" in applied.stdout
    homes = {topic: as_json(meshctl, "explain", topic)["cluster"] for topic in ("apples", "bananas-1", "cherries", "x")}
    assert homes == {"apples": "kafka_c1", "bananas-1": "kafka_c2", "cherries": "kafka_c3", "x": ""}
    again = as_json(meshctl, "apply", "-f", EXAMPLE, *where, "--replace")
    actions = {step["action"] for kind in ("clusters", "rules") for step in again["plan"][kind]}
    assert actions == {"unchanged"}
    specs = {each["spec"]["cluster_name"]: each["spec"] for each in as_json(meshctl, "cluster", "list")["clusters"]}
    assert (specs["kafka_c3"]["partition_count"], specs["kafka_c3"]["producer_config"]["acks"]) == (5, "1")


def test_watch_shows_a_decision_when_it_is_taken(
    meshctl: Meshctl, clusters: None, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("kiwis")
    before = int(as_json(meshctl, "status")["last_position"])
    meshctl("rule", "add", "--topic", topic, "--to", "kafka_c1")
    seen = meshctl("watch", "--from", str(before + 1), "-n", "1").stdout
    assert f"topic {topic} -> kafka_c1" in seen
    meshctl("rule", "remove", "--topic", topic)


def test_what_became_of_records_is_followed(
    meshctl: Meshctl,
    clusters: None,
    kafka_c1: KafkaCluster,
    unique_name: Callable[[str], str],
    record_audit_topic: str,
) -> None:
    topic, kafka = unique_name("orders"), Kafka(kafka_c1.bootstrap)
    kafka.create(topic)
    kafka.create(record_audit_topic)
    with started(kafka_c1.bootstrap, audit_target="topic", audit_topic=record_audit_topic, name="till") as world:
        world.produce(topic, {"key": "alice", "value": 1, "correlationId": "c-1"}, {"key": "bob", "value": 2})
        world.produce(topic, {"key": "carol", "value": 3, "partition": 77})
    asked = ("audit", "tail", "--topic", topic, "--since", "1h", "--no-follow")
    found = [json.loads(line) for line in meshctl(*asked, "-o", "json").stdout.splitlines()]
    assert {(each["key"], each["audit_status"], each["cluster_name"]) for each in found} == {
        ("alice", "SUCCESS", "kafka_c1"),
        ("bob", "SUCCESS", "kafka_c1"),
        ("carol", "FAILURE", "kafka_c1"),
    }
    [line] = meshctl(*asked, "--correlation-id", "c-1").stdout.splitlines()
    assert f"SUCCESS  PRODUCER  {topic}-" in line
    assert line.endswith("key=alice  correlation=c-1  by=till")


@pytest.fixture
def sidecar(control: str, kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    """A real one, which control hears of."""
    with started(kafka_c1.bootstrap, control_addresses=control, name="till") as world:
        yield world


def test_a_sidecar_is_told_what_to_do_and_what_came_of_it_is_seen(
    meshctl: Meshctl, sidecar: SidecarWorld, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic, group = unique_name("orders"), unique_name("billing")
    Kafka(kafka_c1.bootstrap).create(topic)
    sidecar.produce(topic, {"value": 1}, {"value": 2})
    instance, one = sidecar.create(group, "one"), f"{group}.one"
    instance.subscribe(topic)
    assert len(instance.read_all(2)) == 2

    def known() -> list[tuple[str, list[str]]]:
        listed = as_json(meshctl, "instances", "list", "--group", group)["instances"]
        return [(each["name"], each["topics"]) for each in listed]

    wait_until(lambda: known() == [(f"instances/{one}", [topic])], "control knows what the instance reads")
    paused = as_json(meshctl, "instances", "pause", one, "--reason", "the till is full", "--wait", "50")
    assert paused["outcome"]["result"] == "ORDER_RESULT_DONE"
    sought = meshctl("instances", "seek", one, "--first", "--wait", "50").stdout
    assert f"{one}: seek all to the first record: done" in sought
    assert instance.read(timeout=100) == []
    meshctl("instances", "resume", one, "--wait", "50")
    assert len(instance.read_all(2)) == 2

    assert "kafka      OK" in meshctl("sidecars", "health", "till", "--wait", "50").stdout
    meshctl("instances", "remove", one, "--wait", "50")
    assert instance.get().status_code == 404

    history = {
        sentence: each["reason"]
        for each in as_json(meshctl, "history", "--instance", one)["entries"]
        for sentence in each["changes"]
    }
    order = paused["name"].removeprefix("orders/")
    assert history[f"consumer {one} is to pause (order {order})"] == "the till is full"
    assert any(sentence.startswith(f"consumer {one}: order {order} done by") for sentence in history)


def test_a_reactive_consumer_is_told_to_read_and_deliver_otherwise_and_to_rest(
    meshctl: Meshctl, control: str, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic, other, group = unique_name("orders"), unique_name("returns"), unique_name("billing")
    kafka, one = Kafka(kafka_c1.bootstrap), f"{group}.push"
    for name in (topic, other):
        kafka.create(name, partitions=1)
    with contextlib.ExitStack() as running:
        backend, next_backend = (running.enter_context(Backend().running()) for _ in range(2))
        settings: dict[str, Any] = {
            "reactive_topics": (topic,), "reactive_group": group, "reactive_name": "push",
            "backend_url": backend.host_url,
            "value_format": "json", "control_addresses": control, "name": "pusher",
        }  # fmt: skip
        running.enter_context(started(kafka_c1.bootstrap, **settings))
        kafka.write(topic, {"value": b"1"})
        backend.wait_for_records(1)

        def described() -> Any:
            return as_json(meshctl, "instances", "describe", one)

        wait_until(lambda: meshctl("instances", "describe", one, check=False).returncode == 0, "control knows of it")
        assert described()["instance"]["kind"] == "INSTANCE_KIND_REACTIVE"

        def told(*arguments: str) -> None:
            assert as_json(meshctl, "instances", *arguments, "--wait", "50")["outcome"]["result"] == "ORDER_RESULT_DONE"

        told("configure", one, "--backend-url", next_backend.host_url, "--route", "value == 3 -> /threes")
        told("configure", one, "--topic", topic, "--topic", other, "--filter", "value != 2")
        kafka.write(topic, {"value": b"2"}, {"value": b"3"})
        kafka.write(other, {"value": b"4"})
        wait_until(lambda: len(next_backend.records) == 2, "what concerns the backend comes to the other one")
        assert {(call.path, call.records[0]["value"]) for call in next_backend.calls} == {
            ("/threes", 3), ("/kafka/records", 4),
        }  # fmt: skip
        assert len(backend.records) == 1

        delivery = wait_until(
            lambda: described()["instance"]["delivery"].get("filter") and described(), "control hears"
        )
        assert delivery["instance"]["delivery"]["backend_url"] == next_backend.host_url
        assert delivery["instance"]["topics"] == [topic, other]

        told("pause", one, "--reason", "the backend is upgraded")
        kafka.write(topic, {"value": b"5"})
        wait_until(lambda: described().get("status", {}).get("state") == "INSTANCE_STATE_PAUSED", "it is paused")
        assert len(next_backend.records) == 2
        told("resume", one)
        wait_until(lambda: len(next_backend.records) == 3, "it goes on")
        refused = meshctl("instances", "remove", one, "--wait", "50", check=False)
        assert "as long as settings, control or the backend declare it" in refused.stdout + refused.stderr
    history = {
        sentence: each["reason"]
        for each in as_json(meshctl, "history", "--instance", one)["entries"]
        for sentence in each["changes"]
    }
    assert any(sentence.startswith(f"consumer {one} is to have backend_url") for sentence in history)
    assert "the backend is upgraded" in history.values()
