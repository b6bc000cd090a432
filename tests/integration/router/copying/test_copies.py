"""A copy has the offsets of its source, whatever takes offsets there, and goes on where an earlier session ended."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from mesh.topic_logs.brokers import Brokers
from mesh.topic_logs.pace import Pace
from services.router.copying.copier import BrokenCopyError, Copier, CopyOrder
from tests.fixtures.record_rules import FIRST_TIME, WITHIN_S, Side, ends
from tests.fixtures.waiting import wait_until

LOOK_S = 0.02
KILLED_RATE = 3_000_000
"""Bytes a second of a copier that is killed: slow enough to be killed many times."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def _copied(source: Side, target: Side, order: CopyOrder, stops: dict[int, int], rate: int = 0) -> Copier:
    async with Brokers(source.spec, "copy") as here, Brokers(target.spec, "copy") as there:
        copier = Copier(order, here, there, Pace(rate))
        await there.partitions(order.target_topic)
        running = asyncio.create_task(copier.run())
        async with asyncio.timeout(WITHIN_S):
            while not (running.done() or (copier.is_open and await _ends(there, order.target_topic, stops) == stops)):
                await asyncio.wait([running], timeout=LOOK_S)
        if running.done():
            running.result()
        running.cancel()
    return copier


async def _ends(of: Brokers, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    return {number: (await of.range(topic, number))[1] for number in partitions}


def copied(source: Side, target: Side, topic: str, move_id: str = "") -> Copier:
    """Copies all that is there now, once open transactions have ended."""
    stops = {number: end for (_, number), end in ends(source, topic, isolation="read_uncommitted").items()}
    return asyncio.run(_copied(source, target, CopyOrder(move_id or topic, topic, topic), stops))


def transaction(
    side: Side, topic: str, number: int, *, commit: bool, then: Callable[[Any], None] | None = None
) -> None:
    producer = side.producer(**{"transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    for index in range(number):
        producer.produce(topic, b"%s-%d" % (b"kept" if commit else b"aborted", index), b"k", 0, timestamp=FIRST_TIME)
    producer.flush(WITHIN_S)
    if then is not None:
        then(producer)
    if commit:
        producer.commit_transaction(WITHIN_S)
    else:
        producer.abort_transaction(WITHIN_S)


def same(c1: Side, c2: Side, topic: str) -> None:
    """Readers see the same on both sides, offsets and times included."""
    assert c1.read(topic) == c2.read(topic)
    for isolation in ("read_committed", "read_uncommitted"):
        assert ends(c1, topic, isolation=isolation) == ends(c2, topic, isolation=isolation)


def test_each_codec_and_each_kind_of_gap_keeps_its_offsets(c1: Side, c2: Side, topic: str) -> None:
    for side in (c1, c2):
        side.create(topic, 2)
    for codec in CODECS:
        c1.write(
            topic, [(index % 2, b"x" * index) for index in range(200)] + [(0, None)], **{"compression.type": codec}
        )
    transaction(c1, topic, 3, commit=True)
    transaction(c1, topic, 50, commit=False)
    c1.write(topic, [(0, b"between"), (1, b"between")])
    transaction(c1, topic, 1, commit=True)
    copier = copied(c1, c2, topic)
    same(c1, c2, topic)
    assert copier.progress[0].gaps == 53
    assert b"aborted-0" not in {each.value for each in c2.read(topic)}


def test_a_log_that_begins_in_the_middle_of_a_batch_begins_there_on_the_target(c1: Side, c2: Side, topic: str) -> None:
    for side in (c1, c2):
        side.create(topic)
    c1.write(topic, [(0, b"%d" % index) for index in range(3000)], **{"linger.ms": 200})
    [future] = c1.admin.delete_records([TopicPartition(topic, 0, 1501)]).values()
    future.result(WITHIN_S)
    copied(c1, c2, topic)
    same(c1, c2, topic)
    assert c2.read(topic)[0].offset == 1501


def test_a_copy_back_goes_on_where_the_old_log_ended(c1: Side, c2: Side, topic: str) -> None:
    for side in (c1, c2):
        side.create(topic)
    c1.write(topic, [(0, b"before")] * 10)
    transaction(c1, topic, 5, commit=False)
    copied(c1, c2, topic, "there")
    c2.write(topic, [(0, b"after")] * 10)
    transaction(c2, topic, 5, commit=True)
    copied(c2, c1, topic, "back")
    same(c1, c2, topic)
    copied(c1, c2, topic, "there again")
    same(c1, c2, topic)


def test_a_copy_that_somebody_else_writes_to_is_broken(c1: Side, c2: Side, topic: str) -> None:
    for side in (c1, c2):
        side.create(topic)
    c1.write(topic, [(0, b"ours")] * 10)
    copied(c1, c2, topic)
    c2.write(topic, [(0, b"theirs")])
    c1.write(topic, [(0, b"ours")])
    c1.write(topic, [(0, b"ours")])
    with pytest.raises(BrokenCopyError, match="ends with another record at offset 10"):
        copied(c1, c2, topic)


def test_times_of_the_broker_are_refused(c1: Side, c2: Side, topic: str) -> None:
    c1.create(topic, message_timestamp_type="LogAppendTime")
    c2.create(topic)
    c1.write(topic, [(0, b"now")])
    with pytest.raises(BrokenCopyError, match="LogAppendTime"):
        copied(c1, c2, topic)


def test_kills_at_any_time_double_nothing(c1: Side, c2: Side, topic: str) -> None:
    """The copier is killed again and again; each next one goes on."""
    for side in (c1, c2):
        side.create(topic)
    for round_ in range(3):
        c1.write(topic, [(0, os.urandom(100)) for _ in range(20_000)], **{"batch.size": 2000})
        transaction(c1, topic, 200, commit=bool(round_ % 2))
    end = _end(c1, topic)
    spawned = multiprocessing.get_context("spawn")
    kills, at = 0, -1
    while at < end - 1000:
        process = spawned.Process(target=_copy_for_ever, args=(c1.bootstrap, c2.bootstrap, topic))
        process.start()
        before = at
        at = wait_until(lambda: (now := _end(c2, topic)) > before and now, "the copy moves", WITHIN_S)  # noqa: B023
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(WITHIN_S)
        kills += 1
    copied(c1, c2, topic)
    same(c1, c2, topic)
    assert kills > 2


def _end(side: Side, topic: str) -> int:
    [end] = ends(side, topic, isolation="read_uncommitted").values()
    return end


def _copy_for_ever(source: str, target: str, topic: str) -> None:
    order, never = CopyOrder(topic, topic, topic), {0: 1 << 40}
    asyncio.run(_copied(Side("c1", source), Side("c2", target), order, never, KILLED_RATE))
