"""A target that keeps up, one that does not, and what gives way."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import orjson
import pytest

from services.sidecar.auditing.events import AuditRecord, AuditType, audit_record
from services.sidecar.auditing.target_queue import NotWrittenError, Overflow, QueueLimits, TargetQueue
from services.sidecar.auditing.text import AuditText, Entry
from services.sidecar.auditing.trail import OFF, AuditTrail
from services.sidecar.telemetry import metrics
from tests.fixtures.waiting import wait_until


class HeldTarget:
    """Writes while it may, in parts of two records; and remembers."""

    name = "held"

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.written: list[str] = []
        self.closed = False

    def write(self, entries: Sequence[Entry]) -> None:
        if not self.may_write.is_set():
            raise NotWrittenError("held up by the test")
        self.written += [orjson.loads(text)["topic"] for _, text in entries[:2]]
        if len(entries) > 2:
            raise NotWrittenError("two at a time", 2)

    def idle(self) -> None: ...

    def close(self, timeout: float) -> None:
        self.closed = True


def records(*topics: str) -> list[AuditRecord]:
    return [audit_record(AuditType.PRODUCER, topic, 0, 0) for topic in topics]


def queue(target: HeldTarget, limits: QueueLimits) -> TargetQueue:
    return TargetQueue(target, AuditText("s").message, limits)


def limits(overflow: Overflow, retry_seconds: float = 30.0, max_records: int = 2) -> QueueLimits:
    return QueueLimits(max_records, 1_000_000, overflow, retry_seconds)


def lost() -> float:
    return float(metrics.lost_audits.labels("held")._value.get())


@pytest.fixture
def target() -> HeldTarget:
    return HeldTarget()


@pytest.fixture
def trails(target: HeldTarget) -> Iterator[list[AuditTrail]]:
    """Put trails here that are to be stopped."""
    started: list[AuditTrail] = []
    yield started
    target.may_write.set()
    for trail in started:
        asyncio.run(trail.stop(5))


def running(trails: list[AuditTrail], target: HeldTarget, limits: QueueLimits) -> AuditTrail:
    trail = AuditTrail([queue(target, limits)])
    trail.start()
    trails.append(trail)
    return trail


def test_what_a_target_cannot_take_now_is_tried_again_in_order(trails: list[AuditTrail], target: HeldTarget) -> None:
    trail = running(trails, target, limits(Overflow.DROP, max_records=100))
    assert trail.record(records("a", "b", "c", "d", "e"))
    target.may_write.set()
    wait_until(lambda: len(target.written) == 5, "all is written")
    assert target.written == ["a", "b", "c", "d", "e"]


def test_a_full_queue_drops_and_counts(trails: list[AuditTrail], target: HeldTarget) -> None:
    trail = running(trails, target, limits(Overflow.DROP))
    before = lost()
    assert trail.record(records("a", "b"))
    assert not trail.record(records("c", "d"))
    assert not trail.is_full  # nobody waits for it
    assert asyncio.run(trail.fault()) is None
    assert lost() - before == 2
    target.may_write.set()
    wait_until(lambda: target.written == ["a", "b"], "what was taken is written")


def test_what_stays_impossible_is_lost_and_counted(trails: list[AuditTrail], target: HeldTarget) -> None:
    trail = running(trails, target, limits(Overflow.DROP, retry_seconds=0))
    before = lost()
    trail.record(records("a", "b"))
    wait_until(lambda: lost() - before == 2, "both are lost")
    wait_until(lambda: trail.record(records("c")), "there is room again")


def test_a_full_queue_holds_up_the_work_until_there_is_room(trails: list[AuditTrail], target: HeldTarget) -> None:
    trail = running(trails, target, limits(Overflow.BLOCK, retry_seconds=0))
    before = lost()
    trail.record(records("a", "b"))
    assert trail.record(records("c"))  # of work that had begun
    assert trail.is_full

    async def life() -> None:
        assert not await trail.room(0)
        wait_until(lambda: trail._queues[0]._why != "", "it was tried")
        assert "audit (held) is full (2 records or 1000000 bytes), so all else waits: held up by the test" in str(
            await trail.fault()
        )
        waiting = [asyncio.create_task(trail.room(30)) for _ in range(3)]
        await asyncio.sleep(0)
        target.may_write.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert await trail.fault() is None

    asyncio.run(life())
    wait_until(lambda: target.written == ["a", "b", "c"], "nothing is lost")
    assert lost() == before


def test_bytes_count_as_well(trails: list[AuditTrail], target: HeldTarget) -> None:
    trail = running(trails, target, QueueLimits(1_000, 500, Overflow.DROP, 30.0))
    assert trail.record([audit_record(AuditType.PRODUCER, "a", 0, 0, key=b"k" * 600)])
    assert not trail.record(records("b"))


def test_the_end_writes_what_is_there_and_counts_what_comes_late(target: HeldTarget) -> None:
    trail = AuditTrail([queue(target, limits(Overflow.BLOCK, max_records=100))])
    trail.start()
    target.may_write.set()
    trail.record(records("a", "b", "c"))
    asyncio.run(trail.stop(30))
    assert (target.written, target.closed) == (["a", "b", "c"], True)
    before = lost()
    assert not trail.record(records("late"))
    assert lost() - before == 1


def test_the_end_waits_no_longer_than_it_may_even_if_nothing_may_be_lost(target: HeldTarget) -> None:
    trail = AuditTrail([queue(target, limits(Overflow.BLOCK))])
    trail.start()
    before = lost()
    trail.record(records("a"))
    asyncio.run(trail.stop(0))
    wait_until(lambda: target.closed, "it ends")
    assert lost() - before == 1


def test_a_trail_that_is_off_or_not_about_this_takes_nothing(target: HeldTarget) -> None:
    assert not OFF.wants(AuditType.PRODUCER)
    assert OFF.record(records("a"))
    trail = AuditTrail([queue(target, limits(Overflow.DROP))], [AuditType.ACTIVE_CONSUMER])
    assert not trail.wants(AuditType.PRODUCER)
    assert trail.record(records("a", "b", "c"))
    assert trail.record(records("d"))  # there is room: nothing was taken
