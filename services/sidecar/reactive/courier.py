"""Carries one batch from what Kafka has to an outcome that Kafka has: reads it, delivers it, has it settled.

Whatever fails on the way is tried again for as long as the partition is ours, in the same batch: while the registry
cannot be asked, while what came of it cannot be written. What hinders a partition is said by name (`problems`).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from itertools import groupby

import structlog

from mesh.pauses import pause
from services.sidecar import metrics, topic_metrics
from services.sidecar.auditing.events import settled
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming.records import Partition
from services.sidecar.delivering.reading import RecordShower
from services.sidecar.delivering.records import Batch, Deliverable, Outcome, RawRecord, ReplyRecord, Settlement, Verdict
from services.sidecar.delivering.settling import NotSettledError
from services.sidecar.delivering.writing import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from services.sidecar.reactive.lanes import held_by
from services.sidecar.reactive.way import Way
from services.sidecar.schemas.schema import RegistryUnavailableError
from services.sidecar.traffic import NO_TRAFFIC, SidecarTraffic

LONG_BATCH_SECONDS = 30.0
"""The original's advice for its backends: a batch should take 20 to 30 s."""
AUDIT_SECONDS = 5.0
"""How long a batch waits for audit at a time, where audit may hold up the work."""

log = structlog.get_logger(__name__)


class Unreadable(Enum):
    """What becomes of a record that does not fit its format."""

    DEAD_LETTER = "dead_letter"
    SKIP = "skip"
    STOP = "stop"
    """Its partition waits in front of it until an operator seeks."""


Settle = Callable[[Settlement, int], Awaitable[None]]
"""Makes a settlement durable, with the offset where its partition goes on. NotSettledError when it is not."""


class Courier:
    """Of one consumer."""

    def __init__(
        self,
        group: str,
        shower: RecordShower,
        settle: Settle,
        audit: AuditTrail,
        unreadable: Unreadable,
        traffic: SidecarTraffic = NO_TRAFFIC,
    ) -> None:
        self._group = group
        self._shower = shower
        self._settle = settle
        self._audit = audit
        self._unreadable = unreadable
        self._traffic = traffic
        self.problems: dict[Partition, str] = {}
        """What hinders partitions now."""

    async def carry(self, partition: Partition, records: list[RawRecord], way: Way) -> int:
        """Returns when the outcome of these records is in Kafka; or of the first so many of them."""
        began = time.monotonic()
        failures = 0
        with _warned_when_long(partition, records):
            while True:
                try:
                    settled_records = await self._through(partition, records, way, began)
                    break
                except (NotSettledError, RegistryUnavailableError) as problem:
                    failures += 1
                    self._hindered(partition, str(problem), failures)
                except Exception as error:
                    failures += 1
                    log.exception("a batch failed unexpectedly, and is tried again", partition=str(partition))
                    self._hindered(partition, f"unexpected failure: {error!r}", failures)
                await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
        self.problems.pop(partition, None)
        metrics.reactive_batch_seconds.observe(time.monotonic() - began)
        return settled_records

    async def _through(self, partition: Partition, records: list[RawRecord], way: Way, began: float) -> int:
        shown = await self._shown(records)
        if self._unreadable is Unreadable.STOP:
            shown = await self._in_front_of_unreadable(partition, shown)
        verdicts: list[Verdict] = [self._given_up(one) for one in shown if isinstance(one, Verdict)]
        replies: list[ReplyRecord] = []
        for path, part in _by_path(shown, way):
            settlement = await way.deliver(Batch(partition, part, path))
            verdicts += settlement.verdicts
            replies += settlement.replies
        while not await self._audit.room(AUDIT_SECONDS):
            self.problems[partition] = "audit does not keep up (audit_on_overflow is block)"
        done = records[: len(shown)]
        await self._settle(Settlement(partition, tuple(verdicts), replies), done[-1].offset + 1)
        self._audit.record(settled(verdicts))
        self._count(partition, done, verdicts, time.monotonic() - began)
        return len(done)

    async def _shown(self, records: list[RawRecord]) -> list[Deliverable | Verdict]:
        if self._shower.may_wait:
            return await self._shower.shown_aside(records)
        return self._shower.shown(records)

    async def _in_front_of_unreadable(
        self, partition: Partition, shown: list[Deliverable | Verdict]
    ) -> list[Deliverable | Verdict]:
        """Those before the first that nobody can read; where that is the first of all, nothing goes on."""
        place = next((index for index, one in enumerate(shown) if isinstance(one, Verdict)), len(shown))
        if place:
            return shown[:place]
        assert isinstance(shown[0], Verdict)
        self.problems[partition] = f"{shown[0].stacktrace}; seek past it (reactive_on_unreadable is stop)"
        log.error("a partition stops", partition=str(partition), reason=self.problems[partition])
        await asyncio.Event().wait()  # until the partition goes, or goes on elsewhere
        return []

    def _given_up(self, verdict: Verdict) -> Verdict:
        """On a record that the backend was not shown."""
        log.warning("a record does not fit its format", what=verdict.stacktrace, becomes=self._unreadable.value)
        return replace(verdict, outcome=Outcome.DROP) if self._unreadable is Unreadable.SKIP else verdict

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They are not ours any more, or begin elsewhere."""
        for partition in partitions:
            self.problems.pop(partition, None)

    def _hindered(self, partition: Partition, why: str, failures: int) -> None:
        self.problems[partition] = why
        if failures == 1:
            log.warning("a batch waits, and is tried again", partition=str(partition), reason=why)

    def _count(self, partition: Partition, records: list[RawRecord], verdicts: list[Verdict], seconds: float) -> None:
        count, size = held_by(records)
        topic_metrics.consumed(partition.topic, self._group, records=count, size=size)
        outcomes = [verdict.outcome for verdict in verdicts]
        unwanted = any(outcome is not Outcome.SUCCESS for outcome in outcomes)
        self._traffic.delivered(partition.topic, count, size, seconds, failed=unwanted)
        for outcome in set(outcomes):
            metrics.reactive_records.labels(outcome.value.lower()).inc(outcomes.count(outcome))
        if len(records) > len(verdicts):
            metrics.reactive_records.labels("filtered").inc(len(records) - len(verdicts))


def _by_path(records: Iterable[Deliverable | Verdict], way: Way) -> Iterator[tuple[str, tuple[Deliverable, ...]]]:
    """Records that go to the same path without another one between them. Those that go nowhere part nothing."""
    placed = [(path, one) for one in records if isinstance(one, Deliverable) and (path := way.path(one)) is not None]
    for path, group in groupby(placed, key=lambda one: one[0]):
        yield path, tuple(one for _, one in group)


@contextlib.contextmanager
def _warned_when_long(partition: Partition, records: list[RawRecord]) -> Iterator[None]:
    """The log names a batch that takes longer than a backend should, while it does."""

    def warn() -> None:
        log.warning(
            f"a batch takes longer than {LONG_BATCH_SECONDS:g} s; let the backend answer sooner, or have smaller ones "
            "(reactive_max_batch_records, reactive_max_batch_bytes)",
            partition=str(partition), first=records[0].offset, last=records[-1].offset, records=len(records),
        )  # fmt: skip

    timer = asyncio.get_running_loop().call_later(LONG_BATCH_SECONDS, warn)
    try:
        yield
    finally:
        timer.cancel()
