"""Makes the outcome of a batch durable: dead letters and replies are written before the batch may be committed.

There are two ways. `PlainSettler` writes, awaits every acknowledgement, and retries without end: after a crash a batch
may be delivered twice, but is never lost. `TransactionalSettler` (a module of its own) writes in one transaction with
the group's offsets.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import structlog

from services.sidecar import metrics
from services.sidecar.dead_letters.record import dead_letter
from services.sidecar.delivering.batch import ReplyRecord, Settlement
from services.sidecar.delivering.writing import write_all
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.records import Failed, Outcome, RawRecord, Reason, Verdict

log = structlog.get_logger(__name__)


class NotSettledError(Exception):
    """None of a batch's dead letters and replies could be written: the batch has to be delivered again."""


class DeadLetters:
    """The topics for a group's dead letters. With an empty extension they are not written, only counted and logged."""

    def __init__(self, group: str, extension: str) -> None:
        self._group = group
        self._extension = extension

    def of(self, verdicts: Iterable[Verdict]) -> Iterator[ReplyRecord]:
        """The dead letters among the verdicts."""
        for verdict in verdicts:
            if verdict.outcome is not Outcome.DEAD_LETTER:
                continue
            metrics.dead_letters.labels(verdict.reason.value if verdict.reason else "").inc()
            if (letter := self._letter(verdict)) is not None:
                yield letter

    def written_by(self, settlement: Settlement) -> list[ReplyRecord]:
        """All that a settlement writes. If a reply is too large, its record becomes a dead letter."""
        replies = (
            replace(one, smaller=partial(self._instead_of, one, one.of)) if one.of else one
            for one in settlement.replies
        )
        return [*self.of(settlement.verdicts), *replies]

    def _instead_of(self, reply: ReplyRecord, record: RawRecord) -> ReplyRecord | None:
        size = len(reply.record.key or b"") + len(reply.record.value or b"")
        why = f"the backend wants a record of {size} bytes written to {reply.topic}: it is too large for Kafka"
        metrics.dead_letters.labels(Reason.OVERSIZE.value).inc()
        return self._letter(Verdict(record, Outcome.DEAD_LETTER, Reason.OVERSIZE, stacktrace=why))

    def _letter(self, verdict: Verdict) -> ReplyRecord | None:
        if self._extension:
            return dead_letter(verdict, self._group, self._extension)
        record = verdict.record
        log.warning(
            "a record is given up; dead letters are switched off",
            topic=record.topic, partition=record.partition, offset=record.offset,
            reason=verdict.reason.value if verdict.reason else "",
        )  # fmt: skip
        return None


class PlainSettler:
    """By the producer that the sidecar has anyway."""

    def __init__(self, producer: RecordProducer, dead_letters: DeadLetters) -> None:
        self._producer = producer
        self._dead_letters = dead_letters
        self._refused: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """The reason why records are not written yet; empty if none waits."""
        return "; ".join(f"records for {topic} are not written yet: {why}" for topic, why in self._refused.items())

    async def settle(self, settlement: Settlement, next_offset: int = 0) -> None:
        """Writes the batch's dead letters and replies. The caller commits."""
        told: set[str] = set()

        def refused(topic: str, why: Sequence[Failed]) -> None:
            metrics.settling_failures.inc()
            self._refused[topic] = why[0].text
            if topic not in told:
                told.add(topic)
                log.warning(
                    "dead letters or replies are not written yet; their records are not committed before",
                    topic=topic,
                    records=len(why),
                    reason=why[0].text,
                )

        try:
            await write_all(self._producer.send, self._dead_letters.written_by(settlement), refused)
        finally:
            for topic in told:
                self._refused.pop(topic, None)
