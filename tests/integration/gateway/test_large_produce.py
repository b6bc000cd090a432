"""Large Produce goes on to real brokers while it comes: moved, cut or shaken, each record is there once."""

import asyncio
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from prometheus_client import REGISTRY

from services.gateway.requests.plan import Lane
from services.gateway.upstream import admission
from services.gateway.wire.frames import encode_request
from services.gateway.wire.messages import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.secured_kafka import SecuredKafka
from tests.fixtures.waiting import until, wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.stored import assert_stored_once
from tests.integration.gateway.talking import talking_to
from tests.integration.gateway.test_upstream_security import one_cluster
from tests.unit.gateway.wire.records import batch

VALUE_BYTES = 300_000
BETWEEN_MOVES = 12
MOVES = ("c2", "c1", "c2")


def value_of(name: str, number: int) -> str:
    """Another one each time, all along: a byte that is missing or doubled shows."""
    word = f"{name} {number} "
    return word * (VALUE_BYTES // len(word))


class LargeProducer:
    """Produces large numbered records, some requests at a time, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, name: str, **config: object) -> None:
        settings = {"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 0, "acks": "all", **config}
        self._producer = Producer(settings)
        self._topic = topic
        self._name = name
        self.acknowledged: list[str] = []
        self.faults: list[KafkaError] = []
        self._waiting = threading.Semaphore(8)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if not self._waiting.acquire(timeout=0.002):
                self._producer.poll(0.002)
                continue
            value = value_of(self._name, number)
            self._producer.produce(self._topic, value, on_delivery=self._delivered(value))
            number += 1
            self._producer.poll(0)

    def _delivered(self, value: str):  # type: ignore[no-untyped-def]
        def delivered(error: KafkaError | None, _: object) -> None:
            self._waiting.release()
            if error is None:
                self.acknowledged.append(value)
            else:
                self.faults.append(error)

        return delivered

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "records were not delivered in time"


def wait_for_more(producers: list[LargeProducer]) -> None:
    seen = [len(producer.acknowledged) for producer in producers]
    wait_until(
        lambda: all(len(p.acknowledged) >= n + BETWEEN_MOVES for p, n in zip(producers, seen, strict=True)),
        "records between two moves",
        60,
    )


@pytest.mark.parametrize(
    "idempotent",
    [pytest.param(True, id="idempotent"), pytest.param(False, id="plain", marks=pytest.mark.soak)],
)
def test_a_topic_moves_while_large_records_are_written(
    idempotent: bool,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    clusters = (kafka_c1, kafka_c2)
    for cluster in clusters:
        create_topic(cluster, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]))
    producers = [
        LargeProducer(gateway.address, apples, f"p{n}", **{"enable.idempotence": idempotent}) for n in range(2)
    ]
    try:
        for target in MOVES:
            wait_for_more(producers)
            gateway.move(rules.to(target, [apples]))
        wait_for_more(producers)
    finally:
        for producer in producers:
            producer.stop()
    assert [producer.faults for producer in producers] == [[], []]
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    stored = [read_all(cluster.bootstrap, apples) for cluster in clusters]
    assert all(stored), "both clusters have had their share"
    if idempotent:
        assert_stored_once(stored[0] + stored[1], acknowledged)
    else:  # what is broken off comes again, and is stored nowhere before
        assert set(stored[0] + stored[1]) == set(acknowledged)


def test_connections_that_break_in_the_middle_lose_and_double_nothing(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> None:
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]))
    producers = [LargeProducer(gateway.address, apples, f"p{n}", **{"enable.idempotence": True}) for n in range(2)]
    try:
        for number in range(6):
            wait_for_more(producers)
            gateway.call(lambda number=number: break_one_midway(gateway, clients=number % 2 == 0))  # type: ignore[misc]
        wait_for_more(producers)
    finally:
        for producer in producers:
            producer.stop()
    assert [producer.faults for producer in producers] == [[], []]
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    assert_stored_once(read_all(kafka_c1.bootstrap, apples), acknowledged)


async def break_one_midway(gateway: RunningGateway, *, clients: bool) -> None:
    """A connection of a client, or of a broker, on which half a request has gone on."""
    async with asyncio.timeout(30):
        while True:
            for client in list(gateway.gateway.connections):
                if client._reading.arriving is None:
                    continue
                if clients:
                    client.abort("a test breaks it")
                    return
                for key, connection in list(client._lanes.connections.items()):
                    if key.lane is Lane.PRODUCE:
                        connection.abort("a test breaks it")
                        return
            await asyncio.sleep(0)


def test_half_a_request_is_stored_nowhere(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> None:
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]))

    def request(records: bytes) -> ProduceRequest:
        data = [PartitionProduceData(0, batch(records))]
        return ProduceRequest(None, -1, 5000, [TopicProduceData(apples, partition_data=data)])

    def sent() -> float:
        return (
            REGISTRY.get_sample_value("kafka_mesh_gateway_upstream_bytes_total", {"cluster": "c1", "direction": "out"})
            or 0.0
        )

    async def talk() -> None:
        async with talking_to(gateway.address) as client:
            record = b"\x14\x00\x00\x00\x01\x08half\x00"  # one record, as a batch holds it
            for _ in range(2):
                await client.ask(request(record), 9, ProduceResponse)
            before = sent()
            client.send_bytes(encode_request(request(bytes(500_000)), 9, 9, "raw")[:300_000])
            await until(lambda: sent() >= before + 300_000, "half a request has gone on")
            client.abort()

    asyncio.run(talk())
    assert read_all(kafka_c1.bootstrap, apples) == ["half", "half"]


@pytest.mark.parametrize("name", ["PLAIN over tls"])
def test_large_records_pass_by_tls_and_across_renewed_logins(
    name: str,
    secured: SecuredKafka,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    apples: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "RENEW_FROM", 0.05)
    monkeypatch.setattr(admission, "RENEW_TO", 0.1)
    create_topic(secured, apples, 1)
    gateway = start_gateway(one_cluster(secured.way(name), apples))
    producer = LargeProducer(gateway.address, apples, "p", **{"enable.idempotence": True})
    try:
        for _ in range(3):
            wait_for_more([producer])
    finally:
        producer.stop()
    assert not producer.faults
    assert sorted(read_all(secured.bootstrap, apples)) == sorted(producer.acknowledged)


def test_large_records_of_clients_that_speak_tls_pass(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    tmp_path: Path,
) -> None:
    create_topic(kafka_c1, apples, 1)
    authority, port = Authority(tmp_path / "tls"), free_block(1)
    signed = authority.sign("gateway", host="IP:127.0.0.1")
    gateway = start_gateway(
        rules.to("c1", [apples]),
        listen=f"tls://127.0.0.1:{port}",
        tls_certificate=signed.certificate,
        tls_key=signed.key,
    )
    trust = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate), "enable.idempotence": True}
    producer = LargeProducer(f"127.0.0.1:{gateway.gateway.port}", apples, "p", **trust)
    try:
        wait_for_more([producer])
    finally:
        producer.stop()
    assert not producer.faults
    assert sorted(read_all(kafka_c1.bootstrap, apples)) == sorted(producer.acknowledged)
