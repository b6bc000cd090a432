"""A read_committed consumer sees nothing of a transaction over two clusters, or all of it."""

import time
import uuid
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its own documented way

from services.gateway.requests.plan import Command
from services.gateway.requests.transactions import end, sweep
from services.gateway.wire.errors import ErrorCode
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import (
    ANSWER_S,
    LibrdkafkaTransacting,
    Open,
    Transacting,
    read_committed,
)

HELD_S = 2.0
"""So long the decision is not carried out: many polls."""
SEEN_S = 20.0


@dataclass(frozen=True, slots=True)
class Orchard:
    """apples live on c1, bananas on c2; the transactional ids of the test live on `home`."""

    apples: str
    bananas: str
    clusters: dict[str, KafkaCluster]
    home: str
    rules: Rules

    @property
    def visible_first(self) -> str:
        """The topic on the home of the transaction: the cluster that commits first."""
        return self.apples if self.home == "c1" else self.bananas

    def beside_the_mesh(self, topic: str) -> list[str]:
        return read_committed(self.clusters["c1" if topic == self.apples else "c2"].bootstrap, topic)


@pytest.fixture(params=["c1", "c2"])
def orchard(
    request: pytest.FixtureRequest,
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    create_topic: CreateTopic,
) -> Orchard:
    name = f"reading-{uuid.uuid4().hex[:8]}"
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    made = Orchard(f"{name}-apples", f"{name}-bananas", clusters, request.param, rules)
    create_topic(kafka_c1, made.apples, 1)
    create_topic(kafka_c2, made.bananas, 1)
    rules.to("c1", [made.apples])
    rules.to("c2", [made.bananas])
    rules.transactions(name, request.param)
    return made


class Reading:
    """A read_committed consumer of both topics, with what it has seen."""

    def __init__(self, bootstrap: str, orchard: Orchard) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{orchard.apples}-readers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in (orchard.apples, orchard.bananas)])
        self.seen: list[str] = []

    def poll(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is not None:
                assert message.error() is None, message.error()
                self.seen.append((message.value() or b"").decode())

    def await_values(self, *values: str) -> None:
        def all_there() -> bool:
            self.poll(0.1)
            return set(values) <= set(self.seen)

        wait_until(all_there, f"{values} are read", SEEN_S)

    def close(self) -> None:
        self._consumer.close()


def not_now(*_: object) -> Generator[Command, object, ErrorCode]:
    yield from ()
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


@contextmanager
def decided_and_not_carried_out(
    orchard: Orchard, producer: Transacting, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Future[Any]]:
    """In the block, home has committed, and the other cluster does not hear of it."""
    with ExitStack() as stack:
        elsewhere = stack.enter_context(ThreadPoolExecutor(1))
        with monkeypatch.context() as patched:
            patched.setattr(end, "commit_parts", not_now)
            patched.setattr(end, "finish_all", not_now)
            patched.setattr(sweep, "finish", not_now)
            committing = elsewhere.submit(producer.commit)
            wait_until(
                lambda: any("half" in value for value in orchard.beside_the_mesh(orchard.visible_first)),
                "home has committed",
            )
            yield committing
        committing.result(ANSWER_S)


@contextmanager
def two_gateways(tmp_path: Path, rules: Rules) -> Iterator[tuple[RunningGateway, RunningGateway]]:
    gateways = [RunningGateway(tmp_path / name, rules.table, name=name) for name in ("deciding", "reading")]
    try:
        yield gateways[0], gateways[1]
    finally:
        for gateway in gateways:
            gateway.close()


@contextmanager
def begun(
    orchard: Orchard, tmp_path: Path, open_producer: Open
) -> Iterator[tuple[Transacting, Reading, RunningGateway]]:
    """A transaction with a record on each cluster, not committed yet; its consumer has read an earlier one."""
    with two_gateways(tmp_path, orchard.rules) as (deciding, reading):
        producer = open_producer(deciding.address, f"{orchard.apples}-id")
        producer.init()
        for value in ("before", "half"):
            producer.begin()
            producer.send(orchard.apples, f"{value} of apples")
            producer.send(orchard.bananas, f"{value} of bananas")
            assert producer.flush() == []
            if value == "before":
                producer.commit()
        reader = Reading(reading.address, orchard)
        reader.await_values("before of apples", "before of bananas")
        yield producer, reader, reading
        producer.close()
        reader.close()


def test_a_consumer_sees_nothing_of_a_transaction_until_all_clusters_have_committed(
    orchard: Orchard, tmp_path: Path, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(orchard, tmp_path, open_producer) as (producer, reader, _):
        with decided_and_not_carried_out(orchard, producer, monkeypatch):
            reader.poll(HELD_S)
            assert sorted(reader.seen) == ["before of apples", "before of bananas"]
        reader.await_values("half of apples", "half of bananas")
        assert len(reader.seen) == 4


def test_what_is_written_behind_a_held_transaction_waits_and_other_partitions_do_not(
    orchard: Orchard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(orchard, tmp_path, LibrdkafkaTransacting) as (producer, reader, reading):
        first = orchard.visible_first
        with decided_and_not_carried_out(orchard, producer, monkeypatch):
            assert ends(reading.address, first, IsolationLevel.READ_COMMITTED) == 2, "the record before, its marker"
            assert ends(reading.address, first, IsolationLevel.READ_UNCOMMITTED) == 4
            plain = Producer({"bootstrap.servers": reading.address})
            plain.produce(first, "behind")
            assert plain.flush(ANSWER_S) == 0
            reader.poll(HELD_S)
            assert sorted(reader.seen) == ["before of apples", "before of bananas"]
        reader.await_values("half of apples", "half of bananas", "behind")
        wait_until(lambda: ends(reading.address, first, IsolationLevel.READ_COMMITTED) == 5, "the end is shown")


def ends(bootstrap: str, topic: str, level: IsolationLevel) -> int:
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets({TopicPartition(topic, 0): latest}, isolation_level=level)
    (told,) = asked.values()
    return int(told.result(ANSWER_S).offset)
