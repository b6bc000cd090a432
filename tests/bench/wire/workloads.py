"""What is asked over the wire: the workloads of the page of measurements, by its names, and a few beside them.

Each of them is the same for every way. Topics begin with `a-` or `b-`, by the cluster that the gateway's table has for
them; the relay, which reads none of it, leads to one broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

KIB, MIB = 1024, 1024 * 1024
PARTITIONS = 10
"""Of each topic at the sink."""


class Kind(StrEnum):
    PRODUCE = "produce"
    FETCH = "fetch"
    IDLE = "idle"
    """Fetch at the end of the log: a long poll that brings nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the page of measurements, or the issue, wants of a gateway, in ratios to the relay."""

    throughput: float | None = None
    cpu: float | None = None
    added_p50_us: float | None = None
    added_p99_us: float | None = None
    mib: float | None = None
    cores: float | None = None
    kib_each: float | None = None

    def __str__(self) -> str:
        bounds = (
            (self.throughput, ">= {:.2f}"),
            (self.cpu, "CPU <= {:.2f}"),
            (self.added_p50_us, "p50 <= {:.0f}"),
            (self.added_p99_us, "p99 <= {:.0f}"),
            (self.mib, "<= {:.0f} MiB"),
            (self.cores, "<= {:.2f} cores"),
            (self.kib_each, "<= {:.0f} KiB each"),
        )
        return ", ".join(text.format(bound) for bound, text in bounds if bound is not None)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    what: str
    kind: Kind = Kind.PRODUCE
    connections: int = 1
    in_flight: int = 1
    topics: tuple[str, ...] = ("a-orders",)
    partitions: int = 1
    """Of each topic, in each request; connections that ask for one spread over them."""
    records: int = 1
    """In each batch."""
    value_bytes: int = 100
    min_bytes: int = 1
    max_bytes: int = MIB
    partition_bytes: int = MIB
    max_wait_ms: int = 500
    rate: float = 0
    """Requests a second, of all connections together; 0: as fast as answers come."""
    stored: bool = False
    """By a broker that keeps what it gets."""
    least_seconds: float = 0
    """Of a run in which all of it is seen."""
    target: Target = Target()

    @property
    def version(self) -> int:
        return 9 if self.kind is Kind.PRODUCE else 12

    def arguments(self) -> Iterator[str]:
        """For the program `load`."""
        values = {
            "kind": self.kind,
            "connections": self.connections,
            "in-flight": self.in_flight,
            "version": self.version,
            "partitions": self.partitions,
            "records": self.records,
            "value-bytes": self.value_bytes,
            "min-bytes": self.min_bytes,
            "max-bytes": self.max_bytes,
            "partition-bytes": self.partition_bytes,
            "max-wait-ms": self.max_wait_ms,
            "rate": self.rate,
        }
        for name, value in values.items():
            yield from (f"--{name}", str(value))
        for topic in self.topics:
            yield from ("--topic", topic)
        if self.stored:
            yield "--stored"


W1S = Workload(
    "W1s",
    "batches of 16 records of 1 KiB, 8 connections, 5 in flight on each",
    connections=8,
    in_flight=5,
    records=16,
    value_bytes=KIB,
    target=Target(0.95, 1.25),
)
W2 = Workload(
    "W2",
    "batches of 1 MB with records of 100 B, 1 connection, 5 in flight",
    in_flight=5,
    records=9_400,
    target=Target(0.95, 1.2),
)
W3 = Workload("W3", "1 record of 100 B, 1 connection, 1 in flight", target=Target(added_p50_us=25, added_p99_us=60))
W4 = Workload(
    "W4", "1 record of 100 B, 200 connections, 1 in flight on each", connections=200, target=Target(0.90, 1.3)
)
W4_1_KIB = replace(W4, name="W4, 1 KiB", what="as W4, 1 record of 1 KiB", value_bytes=KIB)
W5M = Workload("W5m", "Fetch of 1 MB, 4 connections", Kind.FETCH, connections=4, target=Target(0.95, 1.2))
W6 = Workload(
    "W6",
    "1 record of 200 B for 10 partitions of 2 topics each, 8 connections, 5 in flight on each",
    connections=8,
    in_flight=5,
    topics=("a-orders", "a-payments"),
    partitions=10,
    value_bytes=200,
)
AS_FAST_AS_IT_GOES = (W1S, W2, W4, W5M, W6)

PACED = Workload("W3 paced", "as W3, 1,000 a second", rate=1000, target=Target(added_p50_us=25, added_p99_us=60))
SMALL_AT_REAL_BROKER = tuple(
    replace(W4, name=name, what=f"{W4.what}{paced}", rate=rate, stored=True, target=Target())
    for name, paced, rate in (("W4", "", 0), ("W4, 2,000 a second", ", 2,000 a second in all", 2000))
)
FIXED_RATE = Workload(
    "5,000 a second",
    "1 record of 100 B, 50 connections in turn, up to 5 in flight on each",
    connections=50,
    in_flight=5,
    rate=5_000,
)
LATENCIES = (W3, PACED, FIXED_RATE)


def of_topics(count: int) -> Workload:
    topics = tuple(f"a-topic-{number}" for number in range(count))
    name = "1 topic" if count == 1 else f"{count} topics"
    return Workload(name, "1 record of 100 B for each topic, 8 connections", connections=8, topics=topics)


TWO_CLUSTERS = Workload(
    "2 clusters",
    "1 record of 100 B for a topic of each cluster, 8 connections",
    connections=8,
    topics=("a-orders", "b-orders"),
)
TWO_CLUSTERS_FETCH = Workload(
    "2 clusters, Fetch",
    "a batch of 16 KiB from a topic of each cluster, both in each answer, 8 connections",
    Kind.FETCH,
    connections=8,
    topics=("a-orders", "b-orders"),
    min_bytes=20 * KIB,
    max_bytes=64 * KIB,
    partition_bytes=20 * KIB,
)
SEVERAL_TOPICS = (of_topics(1), of_topics(10), of_topics(100), TWO_CLUSTERS)

MANY_CONNECTIONS = Workload(
    "1,000 connections",
    "each sends 1 record of 100 B a second",
    connections=1000,
    rate=1000,
    least_seconds=3,
    target=Target(mib=120),
)
IDLE_500_MS = Workload(
    "5,000 idle, 500 ms",
    "consumers that wait",
    Kind.IDLE,
    connections=5000,
    least_seconds=4,
    target=Target(cores=0.20, kib_each=40),
)
IDLE_30_S = Workload(
    "5,000 idle, 30 s",
    "consumers that wait",
    Kind.IDLE,
    connections=5000,
    max_wait_ms=30_000,
    least_seconds=30,
    target=Target(cores=0.02, kib_each=40),
)
CROWDS = (MANY_CONNECTIONS, IDLE_500_MS, IDLE_30_S)
