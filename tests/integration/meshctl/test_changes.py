"""When changes are made, with a real control: frozen, scheduled and made at their time, cancelled, waited for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def as_json(meshctl: Meshctl, *arguments: str) -> Any:
    return json.loads(meshctl(*arguments, "-o", "json").stdout)


@pytest.fixture
def topic(meshctl: Meshctl, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> str:
    """A topic's name that no rule has yet; c1 is registered."""
    if not any(each["spec"]["cluster_name"] == "kafka_c1" for each in as_json(meshctl, "cluster", "list")["clusters"]):
        meshctl("cluster", "register", "kafka_c1", kafka_c1.bootstrap)
    return unique_name("changes-plums")


def test_a_frozen_mesh_refuses_changes_and_says_why(meshctl: Meshctl, topic: str) -> None:
    meshctl("freeze", "--reason", "quarter's end")
    try:
        refused = meshctl("rule", "set", "--topic", topic, "--to", "kafka_c1", check=False)
        assert refused.returncode == 1
        assert "ada@" in refused.stderr
        assert "(quarter's end); `meshctl thaw`" in refused.stderr
        assert "(quarter's end); see meshctl thaw" in meshctl("status").stdout
        checked = meshctl("rule", "set", "--topic", topic, "--to", "kafka_c1", "--dry-run").stdout
        assert "checked only, nothing was changed" in checked
    finally:
        meshctl("thaw", "--reason", "the books are closed")
    meshctl("rule", "set", "--topic", topic, "--to", "kafka_c1", "--wait")
    assert as_json(meshctl, "explain", topic)["cluster"] == "kafka_c1"


def test_a_change_is_made_at_its_time(meshctl: Meshctl, topic: str) -> None:
    scheduled = as_json(meshctl, "rule", "set", "--topic", topic, "--to", "kafka_c1", "--at", "+8s", "--reason", "late")
    assert (scheduled["reason"], scheduled["command"]["target_cluster"]) == ("late", "kafka_c1")
    wait_until(lambda: as_json(meshctl, "explain", topic)["cluster"] == "kafka_c1", "the change is made")
    identifier = scheduled["name"].removeprefix("schedules/")
    wait_until(
        lambda: f"scheduled change {identifier} made: revision" in meshctl("history", "--schedule", identifier).stdout,
        "its outcome is on record",
    )


def test_one_that_is_cancelled_is_not_made(meshctl: Meshctl, topic: str) -> None:
    scheduled = as_json(meshctl, "rule", "add", "--topic", topic, "--to", "kafka_c1", "--at", "02:00 UTC")
    identifier = scheduled["name"].removeprefix("schedules/")
    listed = meshctl("schedule", "list").stdout
    assert identifier in listed
    assert f"add topic {topic} -> kafka_c1" in listed
    assert "1 change scheduled" in meshctl("status").stdout
    meshctl("schedule", "cancel", identifier)
    assert as_json(meshctl, "schedule", "list")["scheduled_changes"] == []
    assert meshctl("schedule", "cancel", identifier, check=False).returncode == 4
    assert f"scheduled change {identifier} cancelled" in meshctl("history", "-n", "1").stdout


def test_what_can_not_be_done_is_refused_when_it_is_scheduled(meshctl: Meshctl, topic: str) -> None:
    refused = meshctl("rule", "set", "--topic", topic, "--to", "nowhere", "--at", "+1h", check=False)
    assert refused.returncode == 1
    assert "known: kafka_c1" in refused.stderr


def test_going_on_without_a_member_needs_its_right_name(meshctl: Meshctl, topic: str) -> None:
    slip = meshctl("rule", "set", "--topic", topic, "--to", "kafka_c1", "--without", "gateway-x", check=False)
    assert slip.returncode == 2
    assert "knows no gateway 'gateway-x'" in slip.stderr
