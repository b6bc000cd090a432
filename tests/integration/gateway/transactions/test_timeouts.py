"""Time-outs of transactions over real clusters: home's ends the whole, other clusters wait for the decision."""

import contextlib
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from services.gateway.downstream import sweeping
from services.gateway.requests.plan import Command
from services.gateway.requests.transactions import end, sweep
from services.gateway.wire.errors import ErrorCode
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import (
    LibrdkafkaTransacting,
    Open,
    TransactionError,
    read_committed,
)

TIMEOUT_MS = "6000"
"""A busy machine writes and decides within this time."""
PASSED_S = 60.0


@pytest.fixture
def topics(rules: Rules, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, create_topic: CreateTopic) -> tuple[str, str]:
    """One topic on c1, and one on c2."""
    name = f"timeouts-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_c1, f"{name}-apples", 1)
    create_topic(kafka_c2, f"{name}-bananas", 1)
    rules.to("c1", [f"{name}-apples"])
    rules.to("c2", [f"{name}-bananas"])
    return f"{name}-apples", f"{name}-bananas"


def write_plain(cluster: KafkaCluster, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def wait_for_time_outs(cluster: KafkaCluster, topic: str) -> None:
    """Until the cluster has aborted a transaction with this time-out that is younger than all before it."""
    witness = LibrdkafkaTransacting(cluster.bootstrap, f"{topic}-witness", transaction_timeout_ms=TIMEOUT_MS)
    witness.init()
    witness.begin()
    witness.send(topic, "never")
    assert witness.flush() == []
    write_plain(cluster, topic, "behind it")
    wait_until(lambda: read_committed(cluster.bootstrap, topic) == ["behind it"], "the witness is aborted", PASSED_S)
    witness.close()


def test_readers_wait_no_longer_when_a_producer_has_died_and_its_transaction_is_timed_out(
    topics: tuple[str, str],
    rules: Rules,
    start_gateway: StartGateway,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    open_producer: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "ABANDONED_PAUSE_S", 1.0)
    apples, bananas = topics
    producer = open_producer(start_gateway(rules.table).address, f"{apples}-id", transaction_timeout_ms=TIMEOUT_MS)
    producer.init()
    producer.begin()
    producer.send(apples, "half")
    producer.send(bananas, "other half")
    assert producer.flush() == []
    write_plain(kafka_c2, bananas, "behind it")
    assert read_committed(kafka_c2.bootstrap, bananas, left_open=True) == []
    wait_until(lambda: read_committed(kafka_c2.bootstrap, bananas) == ["behind it"], "the part is aborted", PASSED_S)
    assert read_committed(kafka_c1.bootstrap, apples) == []
    with pytest.raises(TransactionError):
        producer.commit()
    with contextlib.suppress(TransactionError):
        producer.close()


def test_a_cluster_that_hears_late_of_the_decision_commits_its_part(
    topics: tuple[str, str],
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    create_topic: CreateTopic,
    tmp_path: Path,
    open_producer: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judge's long run found such transactions torn: c2 came back after the time-out, and had aborted its part."""

    def not_now(*_: object) -> Generator[Command, object, ErrorCode]:
        yield from ()
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    apples, bananas = topics
    create_topic(kafka_c2, f"{bananas}-witness", 1)
    gateway = RunningGateway(tmp_path / "gateway", rules.table)
    producer = open_producer(gateway.address, f"{apples}-id", transaction_timeout_ms=TIMEOUT_MS)
    producer.init()
    producer.begin()
    producer.send(apples, "half")
    producer.send(bananas, "other half")
    assert producer.flush() == []
    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as elsewhere:
        for module, name in ((end, "commit_parts"), (end, "finish_all"), (sweep, "finish")):
            patched.setattr(module, name, not_now)
        committing = elsewhere.submit(producer.commit)
        wait_until(lambda: read_committed(kafka_c1.bootstrap, apples) == ["half"], "home has committed")
        wait_for_time_outs(kafka_c2, f"{bananas}-witness")
        patched.undo()
        wait_until(lambda: read_committed(kafka_c2.bootstrap, bananas) == ["other half"], "c2 has committed")
        with contextlib.suppress(TransactionError):  # the client gave up
            committing.result()
    with contextlib.suppress(TransactionError):
        producer.close()
    gateway.close()
