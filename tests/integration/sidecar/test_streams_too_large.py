"""What a topology, its backend or a dead letter wants written is too large for Kafka: the topology goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.backend import Backend, answer_of
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.stream_world import StreamWorld, streams_of, wait_for_state
from tests.integration.sidecar.test_too_large import limited, said_by
from tests.integration.sidecar.world import WITHIN_SECONDS, Kafka, SidecarWorld, started

TOPOLOGIES = """
def growing():
    topology = Topology("growing")
    topology.stream(P + "words").map_values(lambda word: word * 500 if word == "grow" else word).to(P + "narrow")
    return topology


def stopping():
    topology = Topology("stopping", on_error=OnError.STOP)
    topology.stream(P + "sentences").map_values(lambda word: word * 500 if word == "grow" else word).to(P + "narrow2")
    return topology


def asking():
    topology = Topology("asking")
    topology.stream(P + "questions").backend("/ask").to(P + "answers")
    return topology


def failing():
    topology = Topology("failing")
    topology.stream(P + "bad").map_values(lambda value: 1 // 0).to(P + "never")
    return topology
"""
ALL = ("growing", "stopping", "asking", "failing")
LIMIT = 1_500
"""Bytes that a narrow topic takes."""


@pytest.fixture(scope="module")
def world(kafka_c1: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamWorld]:
    folder: Path = tmp_path_factory.mktemp("topologies")
    made = StreamWorld(Kafka(kafka_c1.bootstrap), folder)
    made.create(
        "words", "words.dlq", "sentences", "questions", "questions.dlq", "answers", "bad", "never", partitions=1
    )
    for narrow in ("narrow", "narrow2", "replies", "bad.dlq"):
        limited(made.kafka, made.prefix + narrow, LIMIT)
    made.define(TOPOLOGIES)
    sys.path.insert(0, str(folder))
    try:
        yield made
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend().running() as made:
        yield made


@pytest.fixture(scope="module")
def sidecar(world: StreamWorld, backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarWorld]:
    with started(
        world.kafka.bootstrap,
        name=f"{world.prefix}sidecar",
        streams=world.reference(*ALL),
        streams_application_id=world.prefix + "app",
        state_dir=tmp_path_factory.mktemp("state"),
        backend_url=backend.host_url,
    ) as made:
        wait_until(
            lambda: all(one["state"] == "running" for one in streams_of(made).values()), "all run", WITHIN_SECONDS
        )
        yield made


def test_a_record_whose_output_is_too_large_becomes_a_dead_letter(world: StreamWorld, sidecar: SidecarWorld) -> None:
    world.write("words", ("a", "one"), ("b", "grow"), ("c", "two"), ("d", "grow"), ("e", "three"))
    assert [one.value for one in world.wait_for("narrow", 3)] == ["one", "two", "three"]
    letters = world.wait_for("words.dlq", 2)
    assert [(one.key, one.value, one.headers["dlq.reason"]) for one in letters] == [
        ("b", "grow", b"oversize"),
        ("d", "grow", b"oversize"),
    ]
    assert f"{world.prefix}narrow: it is too large for Kafka" in letters[0].headers["StackTrace"].decode()


def test_a_topology_that_stops_at_errors_stops_in_front_of_it(world: StreamWorld, sidecar: SidecarWorld) -> None:
    world.write("sentences", ("a", "one"), ("b", "grow"), ("c", "two"))
    stopped = wait_for_state(sidecar, "stopping", "failed")
    assert f"stopped in front of {world.prefix}sentences-0 offset 1" in stopped["reason"]
    assert "too large for Kafka" in stopped["reason"]
    assert [one.value for one in world.committed("narrow2")] == ["one"]


def test_a_record_whose_reply_is_too_large_becomes_a_dead_letter_and_the_backend_is_not_asked_about_it_again(
    world: StreamWorld, sidecar: SidecarWorld, backend: Backend
) -> None:
    reply = {"topic": world.prefix + "replies", "valueFormat": "string", "records": [{"value": "r" * 5_000}]}
    backend.always(answer_of(lambda one: {"produce": [reply]} if one["value"] == "large" else {}))
    world.write("questions", ("a", "large"), ("b", "small"))
    assert [one.value for one in world.wait_for("answers", 1)] == ["small"]
    (letter,) = world.wait_for("questions.dlq", 1)
    assert (letter.value, letter.headers["dlq.reason"]) == ("large", b"oversize")
    assert (letter.headers["dlq.topic"], letter.headers["dlq.offset"]) == (f"{world.prefix}questions".encode(), b"0")
    assert world.committed("replies") == []
    asked = [record["value"] for call in backend.calls for record in call.records]
    assert asked.count("large") == 1


def test_a_dead_letter_that_is_too_large_goes_without_its_value(world: StreamWorld, sidecar: SidecarWorld) -> None:
    world.write("bad", ("a", "small"), ("b", "v" * 5_000), ("c", "small"))
    wait_until(lambda: len(world.committed("bad.dlq")) == 3, "three dead letters", WITHIN_SECONDS)
    letters = world.kafka.read(world.prefix + "bad.dlq", None)
    assert [letter.value for letter in letters] == [b'"small"', None, b'"small"']
    assert said_by(letters[1])["dlq.value.bytes"] == "5002"
    wait_for_state(sidecar, "failing", "running")
