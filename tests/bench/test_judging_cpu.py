"""What it costs to judge and change a record of 200 B JSON: by itself, and in a mirror and a content rule that run.

`MESH_BENCH_RECORDS`: of the topic. Counted is from when a fifth of it has been read until all has.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesh.judging.records import Content
from mesh.rpc.v1.record_rules_pb2 import (
    VALUE_FORMAT_BYTES,
    ContentBranch,
    ContentRuleSpec,
    HeaderValue,
    Transform,
)
from services.router.forwarding.compiler import Compiler
from services.router.forwarding.orders import RunRule
from services.router.forwarding.registry_access import RegistryAccess
from tests.bench.figures import Sheet, Table, spread, watched
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.content_rules import content_rule
from tests.fixtures.record_rules import WITHIN_S, Side, Workers, ends, mirror, two_sides
from tests.fixtures.waiting import wait_until
from tests.unit.router.forwarding.records import Sample

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "200000"))
TIMES = 20_000
WARM = 0.2
PARTITIONS = 4
VALUE = (
    b'{"customer":{"country":"DE","id":4711,"card":{"number":"4111111111111111","cvc":"123"}},"amount":12.5,'
    b'"items":[{"sku":"a","n":1},{"sku":"b","n":2}],"note":"' + b"x" * 40 + b'"}'
)
HEADERS: list[tuple[str, bytes | None]] = [("kind", b"order"), ("trace", b"0af7651916cd43dd8448eb211c80319c")]
BY_HEADER = "headers.kind == 'order'"
BY_FIELD = "value.customer.country == 'DE' && value.amount > 10"
SET = Transform(set_header=HeaderValue(name="by", value="mesh"))
DROP = Transform(drop_header="trace")
REDACT = Transform(redact_json_field="customer.card.number")
COMPILER = Compiler(RegistryAccess())


def test_judging_alone(sheet: Sheet, rounds: int) -> None:
    record, content = Sample(value_=VALUE, headers_=HEADERS), Content(VALUE, HEADERS)
    spaced = Content(VALUE.replace(b",", b", "), HEADERS)
    branches = [ContentBranch(when=f"value.customer.country == '{name}'") for name in ("FR", "IT", "ES", "PL", "DE")]
    filters = (
        BY_HEADER,
        "key.startsWith('k')",
        "headers.kind.matches('^ord')",
        BY_FIELD,
        "value.items.exists(i, i.sku == 'b')",
    )
    ways: dict[str, Callable[[], object]] = {
        f"filter {text}": partial(COMPILER.judge(text), record) for text in filters
    }
    rule = ContentRuleSpec(source_cluster="c1", topic="orders", branches=branches)
    ways["content rule, the fifth of five branches on a field"] = partial(COMPILER.content_plan("bench", rule), record)
    ways["set a header"] = partial(COMPILER.transformer([SET]), content)
    ways["drop a header"] = partial(COMPILER.transformer([DROP]), content)
    ways["redact a field, JSON without spaces"] = partial(COMPILER.transformer([REDACT]), content)
    ways["redact a field, JSON with spaces"] = partial(COMPILER.transformer([REDACT]), spaced)
    rows = [[name, spread([_cpu_us(way) for _ in range(rounds)], 1)] for name, way in ways.items()]
    sheet.add(Table(f"Judging a record of {len(VALUE)} B", ["what", "CPU us/record"], rows))


def _cpu_us(way: Callable[[], object]) -> float:
    way()
    began = time.process_time()
    for _ in range(TIMES):
        way()
    return 1e6 * (time.process_time() - began) / TIMES


@pytest.fixture
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.mark.timeout(3600)
def test_cpu_of_a_record_under_way(sides: tuple[Side, Side], tmp_path: Path, sheet: Sheet, rounds: int) -> None:
    c1, c2 = sides
    full = c1.create(f"bench-judging-{uuid.uuid4().hex[:8]}", PARTITIONS)
    c1.create(f"{full}.dlq")
    _fill(c1, full)
    ways: Mapping[str, Callable[[str, str], RunRule]] = {
        "mirror as it is": lambda rule, copy: RunRule(mirror(rule, full, target_topic=copy), 12, 11),
        f"mirror, filter {BY_HEADER}": lambda rule, copy: _mirror(rule, full, copy, filter=BY_HEADER),
        f"mirror, filter {BY_FIELD}": lambda rule, copy: _mirror(rule, full, copy, filter=BY_FIELD),
        "mirror, set a header": lambda rule, copy: _mirror(rule, full, copy, transforms=[SET]),
        "mirror, redact a field": lambda rule, copy: _mirror(rule, full, copy, transforms=[REDACT]),
        "content rule by header": lambda rule, copy: content_rule(
            full, [(BY_HEADER, ("c2", copy))], rule_id=rule, value_format=VALUE_FORMAT_BYTES
        ),
        "content rule by field": lambda rule, copy: content_rule(full, [(BY_FIELD, ("c2", copy))], rule_id=rule),
    }
    costs: dict[str, list[float]] = {name: [] for name in ways}
    others = []
    for number in range(rounds):
        for name, order in ways.items():
            rule = f"bench-{uuid.uuid4().hex[:8]}"
            copy = c2.create(f"{full}.{rule}", PARTITIONS)
            with Workers(tmp_path / f"{number}.log", sides).running() as workers:
                process = psutil.Process(workers.pid)
                with watched(process) as disturbance:
                    workers.run(order(rule, copy))
                    costs[name].append(_measure(workers, rule, process))
            others.append(disturbance.cores)
            assert sum(ends(c2, copy).values()) >= RECORDS
    rows = [[name, spread(cost, 1)] for name, cost in costs.items()]
    notes = [f"brokers and other programs kept {spread(others, 1)} cores busy meanwhile"]
    title = f"A record under way: {RECORDS:,} of {len(VALUE)} B JSON and 2 headers, {rounds} rounds"
    sheet.add(Table(title, ["rule", "CPU us/record, all threads"], rows, notes))


def _mirror(rule: str, topic: str, copy: str, **further: Any) -> RunRule:
    return RunRule(mirror(rule, topic, target_topic=copy, **further), 12, 11)


def _fill(side: Side, topic: str) -> None:
    producer = side.producer(**{"queue.buffering.max.messages": RECORDS, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce(topic, VALUE, b"key-%d" % (number % 5000), number % PARTITIONS, headers=HEADERS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(WITHIN_S) == 0


def _measure(workers: Workers, rule: str, process: psutil.Process) -> float:
    """Microseconds of CPU for a record, from a fifth to all of them."""

    def read() -> int:
        said = workers.progress(rule)
        return sum(each.position for each in said.partitions) if said else 0

    def after(records: float) -> tuple[int, float] | None:
        return (read(), _cpu_s(process)) if read() >= records else None

    began = wait_until(lambda: after(WARM * RECORDS), "a fifth is read", WITHIN_S)
    ended = wait_until(lambda: after(RECORDS), "all is read", WITHIN_S)
    return 1e6 * (ended[1] - began[1]) / (ended[0] - began[0])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
