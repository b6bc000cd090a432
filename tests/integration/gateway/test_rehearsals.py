"""A candidate cluster gets a share of real clients' produces, and no client feels it."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from mesh.rehearsals.words import candidate_topic
from mesh.rpc import rehearsals
from services.gateway.downstream import rehearsing
from services.gateway.requests.rehearsing.produces import WHOLE, is_in_share
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway

PARTITIONS = 3
RECORDS = 300
RATE = 100_000_000
FELT_S = 8.0
"""Less than the gateway waits for a broker, so no client has waited for the candidate."""


@dataclass
class House:
    """apples live on c1; c2 is the candidate."""

    gateway: RunningGateway
    rules: Rules
    apples: str
    c1: KafkaCluster
    c2: KafkaCluster

    def rehearse(self, share: int = WHOLE, rate: int = RATE, seconds: int = 600) -> None:
        each = rehearsals.Rehearsal(
            cluster_name="c2",
            rehearsal_id=uuid.uuid4().hex[:8],
            topics=[rehearsals.RehearsedTopic(topic=self.apples, partitions=PARTITIONS)],
            share=share,
            bytes_per_second=rate,
            state=rehearsals.REHEARSAL_STATE_RUNNING,
        )
        each.end_time.FromSeconds(int(time.time()) + seconds)
        self.gateway.follow(self.rules.rehearsed(each))

    def end(self) -> None:
        self.gateway.follow(self.rules.rehearsed())

    def figures(self) -> dict[str, rehearsals.RehearsalFigures]:
        return {each.cluster_name: each for each in self.gateway.gateway.mesh.rehearsing.report()}

    def settled(self) -> dict[str, rehearsals.RehearsalFigures]:
        """The figures when no copy is on its way."""
        wait_until(lambda: self.gateway.gateway.mesh.rehearsing.copies == 0, "no copy is on its way", 60)
        return self.figures()

    def produce(self, count: int = RECORDS, begin: str = "", **config: Any) -> list[float]:
        """Writes single records one by one; returns the seconds that each of them took."""
        producer = Producer({"bootstrap.servers": self.gateway.address, "linger.ms": 0, "acks": "all", **config})
        if "transactional.id" in config:
            producer.init_transactions(30)
            producer.begin_transaction()
        took: list[float] = []
        faults: list[str] = []
        for number in range(count):
            began = time.monotonic()
            producer.produce(
                self.apples, f"{begin}{number}" + "x" * 200, partition=number % PARTITIONS,
                on_delivery=lambda error, _: faults.append(str(error)) if error else None,
            )  # fmt: skip
            assert producer.flush(60) == 0
            took.append(time.monotonic() - began)
        if "transactional.id" in config:
            producer.commit_transaction(30)
        assert faults == []
        return took

    def copies(self) -> list[str]:
        return read_all(self.c2.bootstrap, candidate_topic(self.apples))


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
) -> House:
    apples = f"rehearsed-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_c1, apples, PARTITIONS)
    create_topic(kafka_c2, candidate_topic(apples), PARTITIONS)
    return House(start_gateway(rules.to("c1", [apples])), rules, apples, kafka_c1, kafka_c2)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
def test_the_candidate_gets_each_record_once_with_the_same_value(house: House, codec: str, kind: str) -> None:
    house.rehearse()
    config: dict[str, Any] = {"compression.type": codec, "enable.idempotence": kind == "idempotent"}
    if kind == "transactional":
        config = {"compression.type": codec, "transactional.id": house.apples}
    house.produce(30, **config)
    figures = house.settled()
    assert {name: (each.produces, each.stored) for name, each in figures.items()} == {"c1": (30, 30), "c2": (30, 30)}
    assert sorted(house.copies()) == sorted(f"{number}" + "x" * 200 for number in range(30))
    assert all(sum(each.latencies.values()) == 30 and each.longest.ToMicroseconds() > 0 for each in figures.values())


def test_a_share_has_exactly_the_batches_whose_hash_is_in_it(house: House) -> None:
    house.rehearse(share=2_000)
    house.produce()
    figures = house.settled()
    copies = set(house.copies())
    assert 20 < len(copies) < 120
    assert figures["c1"].produces == figures["c2"].stored == len(copies)
    house.end()
    house.produce(10, "later")
    assert not any(each.startswith("later") for each in house.copies())


def test_the_hash_decides_by_topic_partition_and_batch() -> None:
    batches = [bytes(17) + number.to_bytes(4, "big") + bytes(40) for number in range(10_000)]
    shares = [sum(is_in_share("apples", 0, each, share) for each in batches) for share in (1_000, 5_000, WHOLE)]
    assert 850 < shares[0] < 1_150 and 4_800 < shares[1] < 5_200 and shares[2] == 10_000
    assert all(is_in_share("apples", 0, each, 5_000) for each in batches if is_in_share("apples", 0, each, 1_000))


def test_a_rehearsal_ends_by_its_time_and_by_its_rate(house: House) -> None:
    house.rehearse(rate=2_000)
    house.produce(30)
    figures = house.settled()
    assert figures["c2"].dropped["rate"] > 0
    assert figures["c2"].stored + figures["c2"].dropped["rate"] == 30
    house.rehearse(seconds=0)
    house.produce(5)
    assert house.settled() == {}


def test_clients_feel_nothing_of_a_candidate_that_is_frozen_and_memory_has_a_bound(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsing, "MOST_BYTES", 5_000)
    house.produce(130)
    house.rehearse()
    house.produce(30)
    house.settled()
    with house.c2.frozen():
        took = house.produce(100, "frozen")
        figures = house.figures()
        assert 0 < house.gateway.gateway.mesh.rehearsing.bytes <= 5_000
    assert max(took) < FELT_S
    assert figures["c1"].stored == 130
    assert figures["c2"].dropped[rehearsing.FULL] > 50
    figures = house.settled()
    ends = figures["c2"].stored + sum(figures["c2"].errors.values()) + sum(figures["c2"].dropped.values())
    assert ends == 130


def test_clients_feel_nothing_of_a_candidate_that_is_killed_or_refuses(house: House) -> None:
    house.rehearse()
    small = AdminClient({"bootstrap.servers": house.c2.bootstrap})
    setting = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, candidate_topic(house.apples), incremental_configs=[setting])
    [changed] = small.incremental_alter_configs([topic]).values()
    changed.result(30)
    house.produce(30)
    figures = house.settled()
    assert (figures["c1"].stored, figures["c2"].stored, dict(figures["c2"].errors)) == (
        30,
        0,
        {"MESSAGE_TOO_LARGE": 30},
    )
    house.c2.kill()
    try:
        took = house.produce(60)
        figures = house.settled()
    finally:
        house.c2.start()
    assert max(took) < FELT_S
    lost = figures["c2"].errors[rehearsing.NO_ANSWER] + figures["c2"].dropped[rehearsing.AWAY]
    assert (figures["c1"].stored, lost) == (90, 60)


async def test_batches_of_java_come_too(house: House) -> None:
    house.rehearse()
    await ConsoleTools(house.gateway.address).run(
        Tool.PRODUCER_PERF_TEST, "--topic", house.apples, "--num-records", "500", "--record-size", "100",
        "--throughput", "-1", "--command-property", "compression.type=lz4",
    )  # fmt: skip
    figures = house.settled()
    assert figures["c2"].stored == figures["c1"].stored > 0
    written = read_all(house.c1.bootstrap, house.apples)
    assert len(written) == 500
    assert sorted(house.copies()) == sorted(written)
