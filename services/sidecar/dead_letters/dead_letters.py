"""The dead letters of one group: those that a settlement needs, and those in place of replies that are too large."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import structlog

from services.sidecar.dead_letters.record import dead_letter
from services.sidecar.delivering.batch import ReplyRecord, Settlement
from services.sidecar.records import Outcome, RawRecord, Reason, Verdict
from services.sidecar.telemetry import metrics

log = structlog.get_logger(__name__)


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

    def records_of(self, settlement: Settlement) -> list[ReplyRecord]:
        """All that a settlement writes. If a reply is too large, its record becomes a dead letter."""
        replies = (
            replace(one, smaller=partial(self._instead_of, one, one.of)) if one.of else one
            for one in settlement.replies
        )
        return [*self.of(settlement.verdicts), *replies]

    def _instead_of(self, reply: ReplyRecord, record: RawRecord) -> ReplyRecord | None:
        size = reply.record.size
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
