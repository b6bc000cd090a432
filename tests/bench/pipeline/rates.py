"""Rates of jobs beside the raw source, in one run and over the same records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import psutil
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from tests.bench.figures import Table, median, spread

VALUE_BYTES = 200
HEADERS: list[tuple[str, str | bytes | None]] = [("content-type", b"application/json"), ("trace", b"0af7651916cd43dd")]
PARTITIONS = 3
TIMEOUT_S = 60.0
FLUSH_S = 600.0
RAW = "raw source, batch to noop"
"""What the others are compared with."""


@dataclass(frozen=True, slots=True)
class Records:
    """A topic with known records."""

    bootstrap: str
    topic: str
    count: int
    partitions: int = PARTITIONS


def produce(
    bootstrap: str, topic: str, count: int, value: Callable[[int], bytes], key: Callable[[int], bytes]
) -> Records:
    """A new topic that holds `count` records, evenly over its partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created: dict[str, Future[Any]] = admin.create_topics(
        [NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})]
    )
    created[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    value(number),
                    key(number),
                    partition=number % PARTITIONS,
                    headers=HEADERS,
                    on_delivery=note,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(FLUSH_S) == 0
    assert not failed
    return Records(bootstrap, topic, count)


def plain(number: int) -> bytes:
    """A value of VALUE_BYTES that does not compress to nothing."""
    text = f'{{"number": {number}, "square": {number * number}, "text": "'
    return (text + f"{number * 2654435761 % (1 << 64):x}" * 20).encode()[: VALUE_BYTES - 2] + b'"}'


def delete(records: Records) -> None:
    admin = AdminClient({"bootstrap.servers": records.bootstrap})
    for future in admin.delete_topics([records.topic]).values():
        future.result(TIMEOUT_S)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system)


def _used_s() -> float:
    """CPU of this process and of all that it has started: Spark's JVM and its workers, also those that have ended."""
    spent = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


@dataclass(slots=True)
class Rates:
    """What was measured in this run."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    """Rows a second."""
    busy: dict[str, list[float]] = field(default_factory=dict)
    """Cores that others kept busy meanwhile, Kafka among them."""
    notes: list[str] = field(default_factory=list)

    def measure(self, name: str, rows: int, run: Callable[[], object]) -> float:
        """Runs it once, and counts it as a round of `name`; rows a second."""
        began, busy, used = time.monotonic(), _busy_s(), _used_s()
        run()
        took = time.monotonic() - began
        others = max(0.0, (_busy_s() - busy) - (_used_s() - used)) / took
        self.add(name, rows / took, others)
        return rows / took

    def add(self, name: str, rate: float, cores: float = 0.0) -> None:
        """A round that was measured elsewhere."""
        print(f"{name}: {rate:,.0f}/s", flush=True)
        self.rates.setdefault(name, []).append(rate)
        self.busy.setdefault(name, []).append(cores)

    def table(self, records: int) -> Table:
        base = median(self.rates[RAW]) if RAW in self.rates else 0.0
        rows = [
            [
                name,
                spread(rates),
                f"{median(rates) / base:.2f}" if base else "",
                f"{median(self.busy[name]):.1f}",
            ]
            for name, rates in self.rates.items()
        ]
        title = f"Pipeline: {records:,} records of {VALUE_BYTES} B with 2 headers in {PARTITIONS} partitions"
        return Table(title, ["what", "rows/s", "of the raw source", "other cores busy"], rows, self.notes)
