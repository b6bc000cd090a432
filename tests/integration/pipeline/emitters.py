"""Gateways and sidecars that report traffic, and what their reports come to: the truth that tables must hold."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import datasketches
import numpy
import psycopg
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from mesh.rpc import traffic

TIMEOUT_S = 60.0
INTERVAL = timedelta(seconds=10)
STEPS: Mapping[str, Callable[[datetime], datetime]] = {
    "traffic_minutes": lambda time: time.replace(second=0, microsecond=0),
    "traffic_hours": lambda time: time.replace(minute=0, second=0, microsecond=0),
    "traffic_days": lambda time: time.replace(hour=0, minute=0, second=0, microsecond=0),
}
SERIES = ("client", "principal", "topic", "rule", "cluster", "api", "reporter")
Row = tuple[str, datetime, tuple[str, ...]]
"""Table, time, series."""


@dataclass(slots=True)
class Sum:
    """What a row must hold."""

    records: int = 0
    bytes: int = 0
    calls: int = 0
    errors: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        return self.records, self.bytes, self.calls, self.errors, len(self.latencies)


@dataclass(frozen=True, slots=True)
class Counter:
    """One combination that was counted in an interval."""

    client: str = "billing"
    principal: str = "ada"
    topic: str = "orders"
    rule: str = "rules/orders"
    cluster: str = "c1"
    api: str = "Produce"
    records: int = 10
    bytes: int = 1_000
    errors: int = 0
    latencies: Sequence[float] = (1.0, 2.0, 3.0)

    def to_proto(self) -> traffic.TrafficCounter:
        names = ("client", "principal", "topic", "rule", "cluster", "api", "records", "bytes", "errors")
        return traffic.TrafficCounter(
            **{name: getattr(self, name) for name in names},
            calls=len(self.latencies),
            latency_sketch=sketch(self.latencies),
        )


def sketch(latencies: Sequence[float]) -> bytes:
    """As gateways write it; empty for none."""
    made = datasketches.kll_floats_sketch(200)
    made.update(numpy.array(latencies, dtype=numpy.float32))
    return bytes(made.serialize()) if latencies else b""


def report_of(start: datetime, counters: Iterable[traffic.TrafficCounter], reporter: str) -> traffic.TrafficReport:
    """What a gateway says of the interval that begins at `start`."""
    made = traffic.TrafficReport(id=str(uuid.uuid4()), reporter=reporter, reporter_kind="gateway")
    made.start_time.FromDatetime(start)
    made.end_time.FromDatetime(start + INTERVAL)
    made.counters.extend(counters)
    return made


class Emitters:
    """Writes reports to a topic, and adds up what brokers have acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 2) -> None:
        self.topic = topic
        self.truth: dict[Row, Sum] = {}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        self._trouble: list[KafkaError] = []
        self._last = traffic.TrafficReport()
        self.create(partitions)

    def create(self, partitions: int = 2) -> None:
        config = {"retention.ms": "-1", "max.message.bytes": "4000000"}
        self._wait(self._admin.create_topics([NewTopic(self.topic, partitions, 1, config=config)]))

    def delete(self) -> None:
        self._wait(self._admin.delete_topics([self.topic]))

    def report(
        self,
        start: datetime,
        counters: Iterable[Counter],
        *,
        reporter: str = "gateway-1",
        partition: int = 0,
        overflowed: int = 0,
        times: int = 1,
        at_once: bool = False,
    ) -> None:
        """A report of the interval that begins at `start`, as often as `times` says; written now, or `at_once` when the
        interval was over.
        """
        written = start + INTERVAL if at_once else datetime.now(UTC)
        counters = list(counters)
        made = report_of(start, (each.to_proto() for each in counters), reporter)
        made.overflowed = overflowed
        self._last = made
        for _ in range(times):
            self.write(made.SerializeToString(), reporter=reporter, partition=partition, written=written)
        for each in counters:
            self._add(start, each, reporter)

    def write(
        self, value: bytes, *, reporter: str = "gateway-1", partition: int = 0, written: datetime | None = None
    ) -> None:
        """Anything at all."""
        self._producer.produce(
            self.topic,
            value,
            key=reporter,
            partition=partition,
            timestamp=int((written or datetime.now(UTC)).timestamp() * 1_000),
            on_delivery=self._note,
        )
        self._producer.poll(0)

    def made_of_last(
        self,
        *,
        id: str | None = "",  # noqa: A002  # the field's name
        start: datetime | None = None,
        counters: Sequence[traffic.TrafficCounter] = (),
    ) -> bytes:
        """The bytes of the last report; with another id (None: a new one), time, or other counters."""
        made = traffic.TrafficReport()
        made.CopyFrom(self._last)
        made.id = str(uuid.uuid4()) if id is None else id or made.id
        if start is not None:
            made.start_time.FromDatetime(start)
            made.end_time.FromDatetime(start + INTERVAL)
        if counters:
            del made.counters[:]
            made.counters.extend(counters)
        return made.SerializeToString()

    def flush(self) -> None:
        """All that was reported is in the topic."""
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self._trouble

    def _add(self, start: datetime, counter: Counter, reporter: str) -> None:
        series = (*(getattr(counter, name) for name in SERIES[:-1]), reporter)
        for table, floor in STEPS.items():
            row = self.truth.setdefault((table, floor(start), series), Sum())
            row.records += counter.records
            row.bytes += counter.bytes
            row.calls += len(counter.latencies)
            row.errors += counter.errors
            row.latencies += counter.latencies

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._trouble.append(error)

    @staticmethod
    def _wait(futures: Mapping[str, Any]) -> None:
        for future in futures.values():
            future.result(TIMEOUT_S)

    def numbers(self) -> dict[Row, tuple[int, int, int, int, int]]:
        """What the tables must hold: records, bytes, calls, errors, and values in the sketch."""
        return {row: each.numbers for row, each in self.truth.items()}


class Tables:
    """The tables, as any reader of PostgreSQL sees them."""

    def __init__(self, url: str) -> None:
        self._url = url

    def sketches(self) -> dict[Row, datasketches.kll_floats_sketch]:
        return {
            row: datasketches.kll_floats_sketch.deserialize(latency)
            for row, (*_, latency) in self._rows().items()
            if latency
        }

    def numbers(self) -> dict[Row, tuple[int, int, int, int, int]]:
        """As `Emitters.numbers`."""
        values = {row: found.n for row, found in self.sketches().items()}
        return {row: (*numbers, values.get(row, 0)) for row, (*numbers, _) in self._rows().items()}

    def progress(self) -> dict[str, Any]:
        with psycopg.connect(self._url, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute("select * from traffic_progress").fetchone() or {}

    def series(self) -> list[tuple[str, ...]]:
        """Of whom and of what there is anything, by SERIES."""
        with psycopg.connect(self._url) as connection:
            return connection.execute(f"select {', '.join(SERIES)} from traffic_series".encode()).fetchall()

    def days(self) -> list[str]:
        """Tables of single days."""
        with psycopg.connect(self._url) as connection:
            found = connection.execute("select inhrelid::regclass::text from pg_inherits order by 1")
            return [name for (name,) in found if name.startswith("traffic_")]

    def _rows(self) -> dict[Row, tuple[Any, ...]]:
        rows: dict[Row, tuple[Any, ...]] = {}
        with psycopg.connect(self._url) as connection:
            for table in STEPS:
                found = connection.execute(
                    f"select t.time, {', '.join(f's.{name}' for name in SERIES)}, "
                    f"records, bytes, calls, errors, latency from {table} t join traffic_series s using (series)"
                ).fetchall()
                for time, *rest in found:
                    row = (table, time.astimezone(UTC), tuple(rest[: len(SERIES)]))
                    assert row not in rows
                    rows[row] = tuple(rest[len(SERIES) :])
        return rows
