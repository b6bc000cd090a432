"""Replies and dead letters in one transaction with the offsets of what they follow from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.backend import Backend, answer_of
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.sidecar.reactive_world import hindrance, reading, wait_for_commit, write
from tests.integration.sidecar.world import Kafka


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def echoing(topic: str) -> dict[str, object]:
    return {"produce": [{"topic": topic, "valueFormat": "string", "records": [{"value": "reply"}]}]}


def test_replies_are_written_once_and_committed_with_their_records(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    replies = f"{orders}-replies"
    kafka.create(replies, 1)
    kafka.create(f"{orders}.dlq", 1)
    backend.always(
        answer_of(lambda one: {"status": "DEAD_LETTER"} if one["value"] == "3" else echoing(replies)),
    )
    once = {
        "reactive_exactly_once": True, "reactive_reply_topics": (replies,), "reactive_transactional_id": orders,
        "reactive_max_batch_records": 2,
    }  # fmt: skip
    with reading(kafka, backend, orders, group, **once) as world:
        wait_until(lambda: not hindrance(world), "it was found out that it is possible")
        assert kafka.read(replies, None) == []
        for partition in (0, 1):
            write(kafka, orders, 5, partition=partition)
        for partition in (0, 1):
            wait_for_commit(kafka, group, orders, partition, 5)
        assert len(kafka.read(replies, None)) == 8
        assert [one.value for one in kafka.read(f"{orders}.dlq", None)] == [b"3", b"3"]


def test_a_transaction_that_is_aborted_leaves_nothing_and_its_batch_comes_again_under_its_key(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    replies = f"{orders}-replies"
    backend.always(answer_of(lambda _: echoing(replies)))
    once = {
        "reactive_exactly_once": True, "reactive_transactional_id": orders, "unknown_topic_timeout_ms": 50,
        "transaction_timeout_ms": 10_000,
    }  # fmt: skip
    with reading(kafka, backend, orders, group, **once) as world:
        write(kafka, orders, 1)
        wait_until(lambda: "aborted" in hindrance(world), "readiness says what hinders it")
        assert kafka.committed(group, orders, 0) < 0
        kafka.create(replies, 1)
        wait_for_commit(kafka, group, orders, 0, 1)
        assert len(kafka.read(replies, None)) == 1
    assert {call.headers["idempotency-key"] for call in backend.calls} == {f"{orders}-0-0-0"}
    assert len(backend.calls) > 1


@pytest.mark.parametrize(("source", "target"), [("c1", "c2"), pytest.param("c2", "c1", marks=pytest.mark.soak)])
def test_replies_on_another_cluster_are_written_once_with_the_commits_of_their_records(
    source: str,
    target: str,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    backend: Backend,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """One transaction spans the cluster that is read and the cluster of the replies, without a rule about its id."""
    replies, dead = f"{topic}-replies", f"{topic}.dlq"
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    read, written = Kafka(clusters[source]), Kafka(clusters[target])
    read.create(topic, 1)
    read.create(dead, 1)
    written.create(replies, 1)
    rules = Rules(clusters)
    rules.to(target, [replies])
    gateway = RunningGateway(tmp_path / "gateway", rules.to(source, [topic, dead]))
    backend.always(answer_of(lambda _: echoing(replies)))
    once = {
        "reactive_exactly_once": True, "reactive_reply_topics": (replies,), "reactive_transactional_id": topic,
    }  # fmt: skip
    try:
        write(read, topic, 3)
        with reading(Kafka(gateway.address), backend, topic, group, **once):
            wait_for_commit(Kafka(gateway.address), group, topic, 0, 3)
        assert len(written.read(replies, None)) == 3
    finally:
        gateway.close()
