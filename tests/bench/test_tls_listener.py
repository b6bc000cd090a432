"""What TLS at the gateway's listener costs in CPU, beside TLS at Kafka's own: the same client, the same run.

For each of the two, TLS costs what the process uses by its TLS listener beyond what it uses by its plain one. The
broker has the compiler C2, as Kafka's scripts start it; embedded brokers do without. Two rounds warm it up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mesh.routing import ForwardingRule, NamePrefix, RoutingTable, RuleVersion, UpstreamCluster
from tests.bench.figures import Sheet, Table, quartiles, watched
from tests.bench.middles import cpu_s, listener
from tests.bench.ways import gateway_of
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.running import running

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "200000"))
"""Of 1 KB, in large batches."""
REQUESTS = RECORDS // 5
"""Produce requests of one record of 100 B."""
WARM_UP = 2
ANSWER_S = 120.0
C2 = {"_JAVA_OPTIONS": "-XX:TieredStopAtLevel=4 -Xmx1g"}
"""It wins over the command line of an embedded broker."""
NOT_BY_THE_CLOCK = 3600


@dataclass(frozen=True, slots=True)
class Way:
    """A listener: where clients connect, and the process that serves them."""

    server: str
    is_tls: bool
    bootstrap: str
    process: psutil.Process
    client: dict[str, Any] = field(default_factory=dict)


class WarmKafka(KafkaCluster):
    """A broker with a TLS listener beside its plain one."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("warm", folder / "kafka", folder / "more.properties", C2)
        self.tls = f"127.0.0.1:{free_block(1)}"
        signed, keystore = authority.sign("broker"), folder / "keystore.pem"
        keystore.write_bytes(signed.key.read_bytes() + signed.certificate.read_bytes())
        told = f"PLAINTEXT://{self.bootstrap},SSL://{self.tls}"
        settings = {
            "listeners": f"{told},CONTROLLER://127.0.0.1:{self._port + 1}",
            "advertised.listeners": told,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
        }
        (folder / "more.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


@contextmanager
def ways(folder: Path) -> Iterator[list[Way]]:
    authority = Authority(folder / "tls")
    signed, tls_port = authority.sign("gateway"), free_block(1)
    by_tls = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
    with ExitStack() as stack:
        kafka = stack.enter_context(running(WarmKafka(folder / "warm", authority)))
        rule = RuleVersion(ForwardingRule("r", NamePrefix("tls-"), "c1"), 0.0, 1)
        table = RoutingTable(1, [UpstreamCluster("c1", (kafka.bootstrap,), 1, home=True)], [rule])
        plain_port = free_block(1)
        listens = {
            "LISTEN": f"127.0.0.1:{plain_port},SSL://127.0.0.1:{tls_port}",
            "TLS_CERTIFICATE": str(signed.certificate),
            "TLS_KEY": str(signed.key),
        }
        middle = stack.enter_context(gateway_of(table, folder, environment=listens)).middle
        broker = listener(kafka.bootstrap)
        if middle is None or broker is None:
            pytest.skip("this machine does not show who listens where")
        yield [
            Way("Kafka", False, kafka.bootstrap, broker),
            Way("Kafka", True, kafka.tls, broker, by_tls),
            Way("gateway", False, f"127.0.0.1:{plain_port}", middle),
            Way("gateway", True, f"127.0.0.1:{tls_port}", middle, by_tls),
        ]


def write(way: Way, topic: str, count: int, size: int, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": way.bootstrap, "acks": 1, **way.client, **config})
    value, failures = os.urandom(size), list[object]()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(ANSWER_S) == 0
    assert not failures


def write_large(way: Way, topic: str) -> None:
    write(way, topic, RECORDS, 1000, **{"linger.ms": 20, "batch.size": 1_000_000})


def write_small(way: Way, topic: str) -> None:
    """One at a time: where requests queue up, the slower way reads several at once, and seems cheaper."""
    write(
        way, topic, REQUESTS, 100,
        **{"linger.ms": 0, "batch.num.messages": 1, "max.in.flight.requests.per.connection": 1},
    )  # fmt: skip


def read(way: Way, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": way.bootstrap, "group.id": "none", **way.client})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found, deadline = 0, time.monotonic() + ANSWER_S
    while found < RECORDS:
        assert time.monotonic() < deadline
        found += sum(each.error() is None for each in consumer.consume(10_000, 0.5))
    consumer.close()


WORKLOADS: dict[str, tuple[Callable[[Way, str], None], float, str]] = {
    "Produce, large batches": (write_large, RECORDS / 1000, "ms/MB"),
    "Produce of one record": (write_small, REQUESTS / 1000, "us"),
    "Fetch, large": (read, RECORDS / 1000, "ms/MB"),
}
"""The work, what its milliseconds of CPU are divided by, and the unit then."""


@pytest.fixture(scope="module")
def found(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Way]]:
    with ways(tmp_path_factory.mktemp("tls")) as made:
        yield made


@pytest.fixture(scope="module")
def rows(found: list[Way], sheet: Sheet) -> Iterator[list[tuple[str, ...]]]:
    made: list[tuple[str, ...]] = []
    yield made
    columns = ("CPU", *(f"{way.server}, {'TLS' if way.is_tls else 'plain'}" for way in found))
    columns += ("TLS at Kafka", "TLS at the gateway", "ratio", "others, cores")
    sheet.add(Table("TLS at the listener", columns, made, ["a ratio up to 1: TLS at the gateway costs no more"]))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
@pytest.mark.parametrize("name", WORKLOADS)
def test_tls_at_the_listener(name: str, found: list[Way], rows: list[tuple[str, ...]], rounds: int) -> None:
    work, divisor, unit = WORKLOADS[name]
    topic = f"tls-{len(rows)}"
    admin = AdminClient({"bootstrap.servers": found[0].bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(ANSWER_S)
    if work is read:
        write_large(found[0], topic)
    used: list[list[float]] = [[] for _ in found]
    others: list[float] = []
    for number in range(WARM_UP + rounds):
        turn = number % len(found)
        for at in (*range(turn, len(found)), *range(turn)):
            before = cpu_s(found[at].process)
            with watched(*{way.process for way in found}) as disturbance:
                work(found[at], topic)
            if number >= WARM_UP:
                used[at].append(1000 * (cpu_s(found[at].process) - before) / divisor)
                others.append(disturbance.cores)
    kafka = [tls - plain for plain, tls in zip(*used[:2], strict=True)]
    gateway = [tls - plain for plain, tls in zip(*used[2:], strict=True)]
    figures = [quartiles(each, 2) for each in (*used, kafka, gateway)]
    # a difference of one round may be near 0: of all rounds, their disturbances even out
    rows.append((f"{name}, {unit}", *figures, f"{sum(gateway) / sum(kafka):.2f}", quartiles(others, 1)))
