"""Owners of topics through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import create_topic

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_an_operator_says_who_owns_topics(
    meshctl: Meshctl, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 1)
    meshctl("cluster", "register", "c1", kafka_c1.bootstrap)
    meshctl("rule", "set", "--topic", topic, "--to", "c1")
    made = meshctl("topic", "own", topic, "--owner", "team-x", "--reason", "the shop").stdout
    assert [line.split()[:2] for line in made.splitlines()[1:]] == [[topic, "team-x"]]
    assert f"topic {topic} belongs to team-x" in meshctl("history", "-n", "5").stdout
    told = json.loads(meshctl("topic", "own", topic, "--nobody", "-o", "json").stdout)
    assert told["owners"][0]["owner"] == "-"
    wrong = meshctl("topic", "own", topic, check=False)
    assert (wrong.returncode, "--owner NAME, or --nobody" in wrong.stderr) == (2, True)
    wrong = meshctl("topic", "own", topic, "--owner", "a b", check=False)
    assert wrong.returncode != 0
    assert "is no owner" in wrong.stderr
