"""Outcomes at least once: dead letters and replies are written before the records of their batch may be committed.

`PlainSettler` awaits every acknowledgement, and retries without end. After a crash a batch may be delivered twice, but
is never lost.
"""

from collections.abc import Collection, Sequence

import structlog

from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.dead_letters.topics import LetterTopics
from services.sidecar.delivering.batch import Settlement
from services.sidecar.delivering.writing import write_all
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.reactive.session import Session
from services.sidecar.records import Failed
from services.sidecar.telemetry import metrics

log = structlog.get_logger(__name__)


class PlainSettler:
    """Writes by the sidecar's producer."""

    def __init__(
        self, producer: RecordProducer, dead_letters: DeadLetters, topics: LetterTopics | None, sources: Collection[str]
    ) -> None:
        """`topics` makes the topics of dead letters for these sources; without sources, for those of the session."""
        self._producer = producer
        self._dead_letters = dead_letters
        self._topics = topics
        self._sources = sources
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
            await write_all(self._producer.send, self._dead_letters.records_of(settlement), refused)
        finally:
            for topic in told:
                self._refused.pop(topic, None)

    async def check(self, session: Session) -> None:
        """Makes missing topics of dead letters. The check never fails: outcomes can be written sooner or later."""
        if self._topics is not None:
            await self._topics.make_missing(self._sources or {one.topic for one in session.partitions})

    async def close(self) -> None:
        """The producer is the sidecar's."""
