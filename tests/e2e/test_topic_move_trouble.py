"""Moves that can't go on end or say so, with the remedy; a certificate tells whether both clusters have the same."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from mesh.rpc import topic_moves
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.movers import Movers, running_movers
from tests.fixtures.record_rules import Side, two_sides

SLOW_BYTES = 2000
"""A second: a copy that does not end within the test."""
RECORDS = [(0, b"x" * 500)] * 200
SINGLE = {"linger.ms": 0, "batch.size": 600}
"""Each record is a batch."""
LARGE = b"x" * 5000
SMALL_BYTES = "2000"
FAILED = topic_moves.TOPIC_MOVE_STATE_FAILED


@pytest.fixture(scope="module")
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.fixture(scope="module")
def movers(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    sides: tuple[Side, Side],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Movers]:
    with running_movers(postgres(), kafka_c1, sides, "trouble", tmp_path_factory.mktemp("movers")) as found:
        yield found


@pytest.fixture
def topic(unique_name: Callable[[str], str], sides: tuple[Side, Side], movers: Movers) -> str:
    c1, c2 = sides
    name = c2.will_have(c1.create(unique_name("moved"), 1))
    movers.route(name, "c1")
    return name


def test_a_certificate_is_confirmed_until_somebody_writes_where_nobody_should(
    movers: Movers,
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, c2 = sides
    c1.write(topic, RECORDS)
    move = movers.ended(movers.move(topic))
    [partition] = movers.certified(move).partitions
    assert partition.source == partition.target
    assert partition.source.records == len(RECORDS)
    c2.write(topic, [(0, b"new")])  # the topic's own records go on there
    assert movers.verified(move) == (True, "")
    code, _, told = movers.meshctl("topic", "move", "certificate", move.name)
    assert (code, "this control has no certificate of its own, so it signs nothing" in told) == (1, True)
    c1.write(topic, [(0, b"by somebody who did not hear of the move")])
    stray = topic_moves.TopicMoveStrays(partition=0, start=len(RECORDS), end=len(RECORDS) + 1)
    found = movers.shown_when(move, lambda found: bool(found.strays), "says that its old log grows")
    assert list(found.strays) == [stray]
    confirmed, told = movers.verified(move)
    assert not confirmed
    assert f"ends at {len(RECORDS) + 1}, and the cut is at {len(RECORDS)}" in told
    c2.delete(topic)
    c2.create(topic, 1)
    c2.write(topic, [*RECORDS[1:], (0, b"y" * 500)])
    confirmed, told = movers.verified(move)
    assert not confirmed
    assert "partition 0 differs" in told
    assert "partition 0 of the target has changed since the certificate" in told


def test_a_topic_that_is_deleted_amid_its_copy_ends_the_move(
    movers: Movers,
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, c2 = sides
    c1.write(topic, RECORDS, **SINGLE)
    move = movers.move(topic, SLOW_BYTES)
    movers.begun(move)
    c2.delete(topic)
    found = movers.ended(move, FAILED)
    assert "was deleted on 'c2'" in found.problem
    assert "begin the move again" in found.problem


def test_records_that_retention_takes_before_they_are_copied_end_the_move(
    movers: Movers,
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, _ = sides
    c1.write(topic, RECORDS, **SINGLE)
    move = movers.move(topic, SLOW_BYTES)
    movers.begun(move)
    movers.router.stop(signal.SIGKILL)
    c1.admin.delete_records([TopicPartition(topic, 0, len(RECORDS) - 1)])[TopicPartition(topic, 0)].result(30)
    movers.router.start()
    found = movers.ended(move, FAILED)
    assert "before they were copied; begin with an empty topic" in found.problem


def test_a_target_that_refuses_a_record_is_told_with_the_remedy_and_the_copy_goes_on_after_it(
    movers: Movers,
    sides: tuple[Side, Side],
    topic: str,
) -> None:
    c1, c2 = sides
    c2.create(topic, 1, max_message_bytes=SMALL_BYTES)
    c1.write(topic, [(0, LARGE)])
    move = movers.move(topic)
    found = movers.hindered(move)
    assert "raise max.message.bytes" in found.problem
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    [altered] = c2.admin.incremental_alter_configs([resource]).values()
    altered.result(30)
    movers.ended(move)
    movers.certified(move)


def test_a_target_cluster_that_is_gone_is_told_and_the_copy_goes_on_when_it_is_back(
    movers: Movers,
    sides: tuple[Side, Side],
    topic: str,
    kafka_c2: KafkaCluster,
) -> None:
    c1, _ = sides
    c1.write(topic, RECORDS, **SINGLE)
    move = movers.move(topic, 10 * SLOW_BYTES)
    movers.begun(move)
    kafka_c2.kill()
    try:
        found = movers.hindered(move)
        assert "'c2'" in found.problem
    finally:
        kafka_c2.start()
    assert not movers.ended(move).problem
    movers.certified(move)
