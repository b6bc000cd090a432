"""Moves that can't go on end or say so, with the remedy; a certificate tells whether both clusters have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.fixtures.meshes import Mesh
from tests.fixtures.own_meshes import own_mesh  # noqa: F401
from tests.fixtures.record_rules import Side
from tests.fixtures.topic_moves import BUDGET, FAILED, certified, ended, of_moves, shown_when

SLOW = ("--rate", "2000")
"""Bytes a second of a copy that does not end within the test."""
RECORDS = [(0, b"x" * 500)] * 200
LARGE = b"x" * 5000
SMALL_BYTES = "2000"


@pytest.fixture(scope="module")
def sides(own_mesh: Mesh) -> Iterator[tuple[Side, Side]]:  # noqa: F811
    own_mesh.meshctl("rule", "set", "moved-*", "--to", "c1")
    both = Side("c1", own_mesh.cluster("c1")), Side("c2", own_mesh.cluster("c2"))
    yield both
    for side in both:
        side.clean()


@pytest.fixture
def topic(unique_name: Callable[[str], str], sides: tuple[Side, Side]) -> str:
    name = sides[0].create(f"moved-{unique_name('t')}"[:100], 1)
    sides[1].will_have(name)
    return name


def test_a_certificate_is_confirmed_until_somebody_writes_where_nobody_should(
    own_mesh: Mesh,  # noqa: F811
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, c2 = sides
    c1.write(topic, RECORDS)
    move = ended(own_mesh, of_moves(own_mesh, topic, "--to", "c2", *BUDGET))
    [partition] = certified(own_mesh, move)["partitions"]
    assert partition["source"] == partition["target"]
    assert int(partition["source"]["records"]) == len(RECORDS)
    c2.write(topic, [(0, b"new")])  # the topic's own records go on there
    assert own_mesh.meshctl("topic", "move", "verify", move["name"]).returncode == 0
    c1.write(topic, [(0, b"by somebody who did not hear of the move")])
    told = own_mesh.meshctl("topic", "move", "verify", move["name"], check=False)
    assert told.returncode != 0
    assert f"ends at {len(RECORDS) + 1}, and the cut is at {len(RECORDS)}" in told.stderr
    c2.delete(topic)
    c2.create(topic, 1)
    c2.write(topic, [*RECORDS[1:], (0, b"y" * 500)])
    told = own_mesh.meshctl("topic", "move", "verify", move["name"], check=False)
    assert told.returncode != 0
    assert "partition 0 differs" in told.stderr
    assert "partition 0 of the target has changed since the certificate" in told.stderr


def test_a_topic_that_is_deleted_amid_its_copy_ends_the_move(
    own_mesh: Mesh,  # noqa: F811
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, c2 = sides
    c1.write(topic, RECORDS, **{"linger.ms": 0, "batch.size": 600})
    move = of_moves(own_mesh, topic, "--to", "c2", *SLOW)
    shown_when(own_mesh, move, lambda found: "progress" in found, "has begun")
    c2.delete(topic)
    found = ended(own_mesh, move, FAILED)
    assert "was deleted on 'c2'" in found["problem"]
    assert "begin the move again" in found["problem"]


def test_records_that_retention_takes_before_they_are_copied_end_the_move(
    own_mesh: Mesh,  # noqa: F811
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, _ = sides
    c1.write(topic, RECORDS, **{"linger.ms": 0, "batch.size": 600})
    move = of_moves(own_mesh, topic, "--to", "c2", *SLOW)
    shown_when(own_mesh, move, lambda found: int(found.get("progress", {}).get("lag", 0)) > 0, "has begun")
    own_mesh.kill("router")
    c1.admin.delete_records([TopicPartition(topic, 0, len(RECORDS) - 1)])[TopicPartition(topic, 0)].result(30)
    own_mesh.start("router")
    found = ended(own_mesh, move, FAILED)
    assert "before they were copied; begin with an empty topic" in found["problem"]


def test_a_target_that_refuses_a_record_is_told_with_the_remedy_and_the_copy_goes_on_after_it(
    own_mesh: Mesh,  # noqa: F811
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, c2 = sides
    c2.create(topic, 1, max_message_bytes=SMALL_BYTES)
    c1.write(topic, [(0, LARGE)])
    move = of_moves(own_mesh, topic, "--to", "c2", *BUDGET)
    found = shown_when(own_mesh, move, lambda found: bool(found.get("hindered")), "says its problem")
    assert "raise max.message.bytes" in found["problem"]
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    [altered] = c2.admin.incremental_alter_configs([resource]).values()
    altered.result(30)
    ended(own_mesh, move)
    certified(own_mesh, move)


def test_a_target_cluster_that_is_gone_is_told_and_the_copy_goes_on_when_it_is_back(
    own_mesh: Mesh,  # noqa: F811
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, _ = sides
    c1.write(topic, RECORDS, **{"linger.ms": 0, "batch.size": 600})
    move = of_moves(own_mesh, topic, "--to", "c2", "--rate", "20000", *BUDGET)
    shown_when(own_mesh, move, lambda found: "progress" in found, "has begun")
    own_mesh.kill("kafka-c2")
    found = shown_when(own_mesh, move, lambda found: bool(found.get("hindered")), "says its problem")
    assert "'c2'" in found["problem"]
    own_mesh.start("kafka-c2")
    assert not ended(own_mesh, move).get("problem")
    certified(own_mesh, move)
