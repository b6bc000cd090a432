"""Processes one batch from Kafka's bytes to an outcome in Kafka: decodes, delivers and settles the batch.

A step that fails is tried again with the same batch, for as long as the consumer has the partition. This happens while
the registry cannot be asked, and while outcomes cannot be written. `problems` names the reason for each partition.
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
from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.auditing.events import settled
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.delivering.batch import Batch, Deliverable, ReplyRecord, Settlement
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.delivering.writing import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from services.sidecar.reactive.batch_sink import BatchSink
from services.sidecar.reactive.lanes import held_by
from services.sidecar.records import Outcome, Partition, RawRecord, Verdict
from services.sidecar.telemetry import metrics, topic_metrics
from services.sidecar.telemetry.traffic import NO_TRAFFIC, SidecarTraffic

LONG_BATCH_SECONDS = 30.0
"""The original's advice for its backends: a batch should take 20 to 30 s."""
AUDIT_SECONDS = 5.0
"""The longest single wait of a batch for audit, if audit may hold up the work."""

log = structlog.get_logger(__name__)


class NotSettledError(Exception):
    """None of a batch's dead letters and replies could be written: the batch has to be delivered again."""


class Unreadable(Enum):
    """The handling of a record that does not fit its format."""

    DEAD_LETTER = "dead_letter"
    SKIP = "skip"
    STOP = "stop"
    """The partition waits in front of the record until an operator seeks."""


Settle = Callable[[Settlement, int], Awaitable[None]]
"""Makes a settlement durable, with the next offset of its partition. NotSettledError when the write fails."""


class BatchProcessor:
    """The batch processor of one consumer."""

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
        """The present problem of each partition that has one."""

    async def process(self, partition: Partition, records: list[RawRecord], sink: BatchSink) -> int:
        """The number of records whose outcomes are in Kafka: all records, or the first ones."""
        began = time.monotonic()
        failures = 0
        with _warned_when_long(partition, records):
            while True:
                try:
                    settled_records = await self._through(partition, records, sink, began)
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

    async def _through(self, partition: Partition, records: list[RawRecord], sink: BatchSink, began: float) -> int:
        shown = await self._shown(records)
        if self._unreadable is Unreadable.STOP:
            shown = await self._in_front_of_unreadable(partition, shown)
        verdicts: list[Verdict] = [self._given_up(one) for one in shown if isinstance(one, Verdict)]
        replies: list[ReplyRecord] = []
        for path, part in _by_path(shown, sink):
            settlement = await sink.deliver(Batch(partition, part, path))
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
        """The records before the first unreadable record. If that is the first record, the partition waits here."""
        place = next((index for index, one in enumerate(shown) if isinstance(one, Verdict)), len(shown))
        if place:
            return shown[:place]
        assert isinstance(shown[0], Verdict)
        self.problems[partition] = f"{shown[0].stacktrace}; seek past it (reactive_on_unreadable is stop)"
        log.error("a partition stops", partition=str(partition), reason=self.problems[partition])
        await asyncio.Event().wait()  # until the task is cancelled: the partition goes, or an operator seeks
        return []

    def _given_up(self, verdict: Verdict) -> Verdict:
        """The final verdict on an unreadable record, which the backend did not get."""
        log.warning("a record does not fit its format", what=verdict.stacktrace, becomes=self._unreadable.value)
        return replace(verdict, outcome=Outcome.DROP) if self._unreadable is Unreadable.SKIP else verdict

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forgets partitions that have gone, or begin at another offset."""
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


def _by_path(
    records: Iterable[Deliverable | Verdict], sink: BatchSink
) -> Iterator[tuple[str, tuple[Deliverable, ...]]]:
    """Runs of neighbouring records for the same path. A record without a path does not end a run."""
    placed = [(path, one) for one in records if isinstance(one, Deliverable) and (path := sink.path(one)) is not None]
    for path, group in groupby(placed, key=lambda one: one[0]):
        yield path, tuple(one for _, one in group)


@contextlib.contextmanager
def _warned_when_long(partition: Partition, records: list[RawRecord]) -> Iterator[None]:
    """Logs a warning about a batch that takes too long, while the backend still has the batch."""

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
