"""What the way costs: Kafka's own perf tools and confluent-kafka against one real broker, direct, through a relay that
copies bytes and reads none, through the gateway, through a peer.

The ways take turns within each round, and each round begins with another one. Ratios are those within a round. The
first round warms up the processes in the middle (the peer's compiler above all) and is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench import confluent_load, perf_tools, ways
from tests.bench.figures import Sheet, Table, median, ratios, spread, watched
from tests.bench.middles import listener
from tests.bench.perf_tools import MIB, RECORD_BYTES
from tests.bench.relayed_kafka import RelayedKafka
from tests.bench.ways import Way
from tests.bench.wire.programs import NoProgramsError, programs
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.running import running

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "300000"))
WARM_UP = RECORDS // 3
SINGLES_PER_S = 2000
SINGLES = 5 * SINGLES_PER_S
SINGLES_WARM_UP = 2 * SINGLES_PER_S
PACED_S, PACED_WARM_UP_S = 6.0, 2.0
PART_OF_SATURATION = 0.5
ADMIN_S = 30.0
BUDGET_S = 75.0
"""After so long a table begins no further round: on a busy machine there are fewer of them, not more minutes."""
SENT_MIB = RECORDS * RECORD_BYTES / MIB
NOT_BY_THE_CLOCK = 3600
"""Seconds for a benchmark that hangs; a slow one ends by itself."""


@dataclass(slots=True)
class Series:
    """What one way gave, an entry for each round."""

    way: Way
    rate: list[float] = field(default_factory=list)
    mean_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rig:
    """A broker, the ways to it, and topics for one run each."""

    broker: KafkaCluster
    admin: AdminClient
    ways: Sequence[Way]
    prefix: str
    missing: Sequence[str]

    def create(self, name: str) -> str:
        """A topic of one partition, whose files go as soon as it is deleted."""
        topic = NewTopic(f"{self.prefix}-{name}", 1, 1, config={"file.delete.delay.ms": "0"})
        self.admin.create_topics([topic])[topic.topic].result(ADMIN_S)
        return topic.topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(ADMIN_S)

    def measure(self, rounds: int, run: Callable[[Way, Series], None]) -> list[Series]:
        """Each way once a round, after a round that does not count; one round at least."""
        began = time.monotonic()
        series = [Series(way) for way in self.ways]
        processes = [p for p in (listener(self.broker.bootstrap), *(way.middle for way in self.ways)) if p is not None]
        for number in range(rounds + 1):
            if number > 1 and time.monotonic() - began > BUDGET_S:
                break
            turn = number % len(series)
            for one in (*series[turn:], *series[:turn]):
                before = one.way.cpu_s()
                with watched(*processes) as disturbance:
                    run(one.way, one)
                one.cpu.append(one.way.cpu_s() - before)
                one.others.append(disturbance.cores)
        for one in series:
            for values in (one.rate, one.mean_ms, one.p99_ms, one.cpu, one.others):
                del values[:1]
        return series


@pytest.fixture(scope="module")
def kafka(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedKafka]:
    with running(RelayedKafka(tmp_path_factory.mktemp("kafka"))) as made:
        yield made


@pytest.fixture(scope="module")
def rig(kafka: RelayedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("ways")
    prefix = f"bench-{os.getpid()}"
    missing: list[str] = []
    with ExitStack() as stack:
        present = [ways.direct(kafka.bootstrap)]
        try:
            present.append(stack.enter_context(ways.relay(programs(), kafka.relay_port, kafka.behind_port, folder)))
        except NoProgramsError as error:
            missing.append(f"without a relay: {error}")
        present.append(stack.enter_context(ways.gateway(kafka.bootstrap, prefix, folder)))
        try:
            present.append(stack.enter_context(ways.kroxylicious(kafka.bootstrap, folder)))
        except (RuntimeError, TimeoutError) as error:  # no figure of ours depends on the peer
            missing.append(f"without Kroxylicious: {str(error).splitlines()[0]}")
        yield Rig(kafka, AdminClient({"bootstrap.servers": kafka.bootstrap}), present, prefix, missing)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_produce(rig: Rig, rounds: int, sheet: Sheet) -> None:
    def run(way: Way, series: Series) -> None:
        topic = rig.create(f"produce-{len(series.rate)}-{rig.ways.index(way)}")
        found = perf_tools.produce(way.bootstrap, topic, RECORDS, WARM_UP)
        rig.delete(topic)
        series.rate.append(found.mib_per_s)
        series.mean_ms.append(found.mean_ms)
        series.p99_ms.append(found.p99_ms)

    series = rig.measure(rounds, run)
    what = f"{RECORDS} records of 1 KiB, the first {WARM_UP} not counted; latencies are those of a full queue"
    notes, title = [what, *_notes(rig, series[0])], "kafka-producer-perf-test, as fast as it goes"
    times = {"mean ms": lambda one: one.mean_ms, "p99 ms": lambda one: one.p99_ms}
    sheet.add(_of_rates(title, "produce", series, notes, times))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_consume(rig: Rig, rounds: int, sheet: Sheet) -> None:
    topic = rig.create("consume")
    perf_tools.produce(rig.broker.bootstrap, topic, RECORDS, WARM_UP)

    def run(way: Way, series: Series) -> None:
        found = perf_tools.consume(way.bootstrap, topic, RECORDS)
        series.rate.append(found.mib_per_s)
        series.mean_ms.append(found.join_ms)

    series = rig.measure(rounds, run)
    rig.delete(topic)
    what = f"{RECORDS} records of 1 KiB, one topic for all; the rate is that of fetching, without the group's join"
    notes = [what, *_notes(rig, series[0])]
    sheet.add(_of_rates("kafka-consumer-perf-test", "consume", series, notes, {"join ms": lambda one: one.mean_ms}))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_single_records(rig: Rig, rounds: int, sheet: Sheet) -> None:
    def run(way: Way, series: Series) -> None:
        topic = rig.create(f"singles-{len(series.mean_ms)}-{rig.ways.index(way)}")
        found = perf_tools.produce(way.bootstrap, topic, SINGLES, SINGLES_WARM_UP, rate=SINGLES_PER_S, linger_ms="0")
        rig.delete(topic)
        series.mean_ms.append(found.mean_ms)
        series.p99_ms.append(found.p99_ms)

    series = rig.measure(rounds, run)
    base = series[0]
    rows = [
        [
            one.way.name,
            spread(one.mean_ms, 2),
            spread([mean - direct for mean, direct in zip(one.mean_ms, base.mean_ms, strict=True)], 2),
            spread(one.p99_ms),
            _per(one, SINGLES, 1e6, 0),
            _others(one),
        ]
        for one in series
    ]
    columns = ["single records", "mean ms", "added ms", "p99 ms", "CPU us/record", "others, cores"]
    what = (
        f"{SINGLES_PER_S} records of 1 KiB a second, linger.ms=0, acks=all; the tool counts p99 in whole milliseconds"
    )
    sheet.add(Table("kafka-producer-perf-test, single records", columns, rows, [what, *_notes(rig, base)]))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_confluent_produce(rig: Rig, rounds: int, sheet: Sheet) -> None:
    def run(way: Way, series: Series) -> None:
        topic = rig.create(f"confluent-{len(series.rate)}-{rig.ways.index(way)}")
        series.rate.append(confluent_load.produce(way.bootstrap, topic, RECORDS, WARM_UP).mib_per_s)
        rig.delete(topic)

    series = rig.measure(rounds, run)
    what = f"{RECORDS} records of 1 KiB, the first {WARM_UP} not counted; the producer's defaults"
    sheet.add(_of_rates("confluent-kafka, producer", "produce", series, [what, *_notes(rig, series[0])]))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_confluent_consume(rig: Rig, rounds: int, sheet: Sheet) -> None:
    topic = rig.create("confluent-consume")
    confluent_load.produce(rig.broker.bootstrap, topic, RECORDS, WARM_UP)

    def run(way: Way, series: Series) -> None:
        series.rate.append(confluent_load.consume(way.bootstrap, topic, RECORDS).mib_per_s)

    series = rig.measure(rounds, run)
    rig.delete(topic)
    what = f"{RECORDS} records of 1 KiB, one topic for all; from when the first ones have come; the consumer's defaults"
    sheet.add(_of_rates("confluent-kafka, consumer", "consume", series, [what, *_notes(rig, series[0])]))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_end_to_end_latency(rig: Rig, rounds: int, sheet: Sheet) -> None:
    topic = rig.create("saturation")
    saturation = perf_tools.produce(rig.broker.bootstrap, topic, RECORDS, WARM_UP).mib_per_s * MIB / RECORD_BYTES
    rig.delete(topic)
    rate = PART_OF_SATURATION * saturation
    found: dict[str, list[confluent_load.Latency]] = {way.name: [] for way in rig.ways}

    def run(way: Way, series: Series) -> None:
        topic = rig.create(f"paced-{len(found[way.name])}-{rig.ways.index(way)}")
        found[way.name].append(confluent_load.paced(way.bootstrap, topic, rate, PACED_S, PACED_WARM_UP_S))
        rig.delete(topic)

    series = rig.measure(rounds, run)
    rows = []
    for one in series:
        counted = found[one.way.name][1:]
        figures = (
            [each.p50_ms for each in counted],
            [each.p99_ms for each in counted],
            [each.p999_ms for each in counted],
        )
        cpu = _per(one, rate * PACED_S, 1e6, 0)
        rows.append([one.way.name, *(spread(each, 1) for each in figures), cpu, _others(one)])
    columns = ["end to end", "p50 ms", "p99 ms", "p99.9 ms", "CPU us/record", "others, cores"]
    what = (
        f"{rate:.0f} records of 1 KiB a second, {PART_OF_SATURATION:.0%} of what Kafka's tool reaches "
        "direct; from the time at which a record was meant to leave to when it was read; "
        f"{PACED_S:g} s, the first {PACED_WARM_UP_S:g} not counted"
    )
    title = "confluent-kafka, end to end at half of saturation"
    sheet.add(Table(title, columns, rows, [what, *_notes(rig, series[0])]))


def _of_rates(
    title: str,
    what: str,
    series: Sequence[Series],
    notes: Sequence[str],
    times: Mapping[str, Callable[[Series], list[float]]] = MappingProxyType({}),
) -> Table:
    """`times`: further columns, by their names."""
    rows = [
        [
            one.way.name,
            spread(one.rate),
            spread(ratios(one.rate, series[0].rate), 2),
            *(spread(time_of(one)) for time_of in times.values()),
            _per(one, SENT_MIB, 1000, 2),
            _others(one),
        ]
        for one in series
    ]
    return Table(title, [what, "MiB/s", "to direct", *times, "CPU ms/MiB", "others, cores"], rows, notes)


def _per(series: Series, units: float, scale: float, digits: int) -> str:
    """CPU of the process in the middle for each unit."""
    if series.way.middle is None:
        return "-"
    return spread([scale * seconds / units for seconds in series.cpu], digits)


def _others(series: Series) -> str:
    return f"{median(series.others):.1f}"


def _notes(rig: Rig, series: Series) -> list[str]:
    counted = f"medians and ranges of {len(series.others)} rounds in which the ways take turns"
    others = "others: cores that processes outside the measurement kept busy meanwhile"
    return [counted, others, *rig.missing]
