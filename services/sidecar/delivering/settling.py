"""What became of a batch is made durable: dead letters and replies are written, and only then may it be committed.

There are two ways. `PlainSettler` writes, awaits every acknowledgement, and goes on trying for as long as it takes: a
batch may be delivered twice after a crash, and never lost. `TransactionalSettler` (a module of its own) writes in one
transaction with the group's offsets.
"""

import asyncio
from collections.abc import Iterable, Iterator

import structlog

from mesh.pauses import pause
from services.sidecar import metrics
from services.sidecar.dead_letters.record import dead_letter
from services.sidecar.delivering.records import Outcome, Settlement, Verdict
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.records import Failed, Outgoing

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0

log = structlog.get_logger(__name__)


class NotSettledError(Exception):
    """What came of a batch could not be written, and none of it was: the batch has to be delivered again."""


class DeadLetters:
    """Whose dead letters go where; an empty extension: nowhere, they are only counted and told."""

    def __init__(self, group: str, extension: str) -> None:
        self._group = group
        self._extension = extension

    def of(self, verdicts: Iterable[Verdict]) -> Iterator[tuple[str, Outgoing]]:
        """Topics and records."""
        for verdict in verdicts:
            if verdict.outcome is not Outcome.DEAD_LETTER:
                continue
            metrics.dead_letters.labels(verdict.reason.value if verdict.reason else "").inc()
            if not self._extension:
                record = verdict.record
                log.warning(
                    "a record is given up; dead letters are switched off",
                    topic=record.topic, partition=record.partition, offset=record.offset,
                    reason=verdict.reason.value if verdict.reason else "",
                )  # fmt: skip
                continue
            letter = dead_letter(verdict, self._group, self._extension)
            yield letter.topic, letter.record


def written_by(settlement: Settlement, dead_letters: DeadLetters) -> dict[str, list[Outgoing]]:
    """All that a settlement writes, by topic, in its order."""
    by_topic: dict[str, list[Outgoing]] = {}
    for topic, record in dead_letters.of(settlement.verdicts):
        by_topic.setdefault(topic, []).append(record)
    for reply in settlement.replies:
        by_topic.setdefault(reply.topic, []).append(reply.record)
    return by_topic


class PlainSettler:
    """By the producer that the sidecar has anyway."""

    def __init__(self, producer: RecordProducer, dead_letters: DeadLetters) -> None:
        self._producer = producer
        self._dead_letters = dead_letters
        self._refused: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """Why something is not written yet; empty when nothing waits."""
        return "; ".join(f"records for {topic} are not written yet: {why}" for topic, why in self._refused.items())

    async def settle(self, settlement: Settlement, next_offset: int = 0) -> None:
        """Whoever calls commits."""
        by_topic = written_by(settlement, self._dead_letters)
        if by_topic:
            await asyncio.gather(*(self._write(topic, records) for topic, records in by_topic.items()))

    async def _write(self, topic: str, records: list[Outgoing]) -> None:
        """Until all are acknowledged. Those that are not go again, and may come to stand behind later ones."""
        failures = 0
        try:
            while True:
                outcomes = await self._producer.send(topic, records)
                refused = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
                if not refused:
                    return
                records = [one for one, outcome in zip(records, outcomes, strict=True) if isinstance(outcome, Failed)]
                failures += 1
                self._tell(topic, len(records), refused[0].text, failures)
                await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
        finally:
            self._refused.pop(topic, None)

    def _tell(self, topic: str, records: int, why: str, failures: int) -> None:
        metrics.settling_failures.inc()
        self._refused[topic] = why
        if failures == 1:
            log.warning(
                "dead letters or replies are not written yet; their records are not committed before",
                topic=topic,
                records=records,
                reason=why,
            )
