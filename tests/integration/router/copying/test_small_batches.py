"""A source whose producers do not linger: its batches of one record come to the target in larger ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.rpc import record_rules
from mesh.topic_logs.batches import batches
from mesh.topic_logs.brokers import Brokers
from mesh.topic_logs.evidence import Evidence, evidence
from services.router.forwarding.orders import RunRule
from tests.fixtures.record_rules import Side, Workers, ends
from tests.integration.router.copying.test_copies import copied, same, transaction

BATCHES = 300
FETCH_BYTES = 1 << 20
ONE_EACH = {"batch.num.messages": 1, "linger.ms": 0}
RECORDS = [(0, b"x" * 300)] * BATCHES


@pytest.fixture
def workers(c1: Side, c2: Side, tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path / "workers.log", (c1, c2)).running() as running:
        yield running


def batches_of(side: Side, topic: str) -> int:
    async def counted() -> int:
        async with Brokers(side.spec, "test") as brokers:
            await brokers.partitions(topic)
            return sum(1 for _ in batches((await brokers.fetch(topic, 0, 0, FETCH_BYTES)).records))

    return asyncio.run(counted())


def evidence_of(side: Side, topic: str, start: int, end: int) -> Evidence:
    async def read() -> Evidence:
        async with Brokers(side.spec, "test") as brokers:
            await brokers.partitions(topic)
            return await evidence(brokers, topic, 0, start, end)

    return asyncio.run(read())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_small_batches_are_joined_and_a_certificate_sees_no_difference(
    c1: Side, c2: Side, topic: str, codec: str
) -> None:
    for side in (c1, c2):
        side.create(topic)
    settings = {**ONE_EACH, "compression.type": codec}
    c1.write(topic, RECORDS, **settings)
    transaction(c1, topic, 20, commit=True)
    copied(c1, c2, topic)
    same(c1, c2, topic)
    assert batches_of(c1, topic) > BATCHES
    assert batches_of(c2, topic) < BATCHES / 2
    for start in (0, 7, BATCHES + 3):
        found = evidence_of(c1, topic, start, BATCHES + 21)
        assert found == evidence_of(c2, topic, start, BATCHES + 21)
        assert found.records == BATCHES + 20 - start
    c2.write(topic, RECORDS, **settings)
    copied(c2, c1, topic, "back")
    same(c1, c2, topic)


def test_a_target_that_takes_only_small_batches_gets_small_ones(
    c1: Side, c2: Side, topic: str, workers: Workers
) -> None:
    c1.create(topic)
    c2.create(topic, max_message_bytes="2000")
    c1.write(topic, RECORDS, **ONE_EACH)
    spec = record_rules.RecordRuleSpec(
        record_rule_id=topic,
        copy=record_rules.CopySpec(source_cluster="c1", topic=topic, target_cluster="c2", target_topic=topic),
    )
    workers.run(RunRule(spec, 12, 11))
    workers.wait_until_caught_up(topic, ends(c1, topic))
    same(c1, c2, topic)
    assert 1 < batches_of(c2, topic) < BATCHES
