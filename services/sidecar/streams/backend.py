"""The requests of a topology to the backend. An answer means the record itself, other records in its place, or none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from services.sidecar.delivering.batch import Batch, Deliverable, ReplyRecord, Settlement
from services.sidecar.delivering.deliverer import Deliverer
from services.sidecar.records import Consumed, Outcome, Partition, Verdict
from services.sidecar.streams.records import StreamRecord

PLACES = 1_000_000
"""The number of records that one record of Kafka may become before a hook; the Idempotency-Key has each one's place."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The backend's answer for one record."""

    becomes: Sequence[tuple[Any, Any]] = ()
    """Keys and values that go on in the record's place."""
    failed: Verdict | None = None
    """The verdict if the record is a dead letter, with the reason."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The backend's answers for all records of a request."""

    of_records: Sequence[Answer]
    replies: Sequence[ReplyRecord] = ()
    """Further records that the backend wants written."""


class Backend(Protocol):
    """The backend that hooks ask, on the event loop."""

    async def ask(self, path: str, records: Sequence[StreamRecord]) -> Answers:
        """Returns when each record of a task has an answer; the time has no bound."""


class DeliveredBackend:
    """The backend beside this sidecar, with the attempts, isolation and circuit of the reactive consumer."""

    def __init__(self, deliverer: Deliverer, *, batch_records: int) -> None:
        self._deliverer = deliverer
        self._batch_records = batch_records

    async def ask(self, path: str, records: Sequence[StreamRecord]) -> Answers:
        deliverables = _deliverables(path, records)
        answers: list[Answer] = []
        replies: list[ReplyRecord] = []
        for first in range(0, len(records), self._batch_records):
            some = slice(first, first + self._batch_records)
            source = records[first].source
            batch = Batch(Partition(source.topic, source.partition), tuple(deliverables[some]), path)
            settlement = await self._deliverer.deliver(batch)
            answers += _answers(records[some], settlement)
            sources = {
                one.raw[:3]: record.source for one, record in zip(deliverables[some], records[some], strict=True)
            }
            replies += [replace(one, of=None if one.of is None else sources[one.of[:3]]) for one in settlement.replies]
            await asyncio.sleep(0)
        return Answers(answers, replies)


def _deliverables(path: str, records: Sequence[StreamRecord]) -> list[Deliverable]:
    """Records for the delivery engine, whose Idempotency-Key is made of topic, partition and offset. Here one record of
    Kafka may lead to several records, and to several hooks, so each gets a topic and an offset of its own.
    """
    counted: Counter[tuple[str, int, int]] = Counter()
    made = []
    for record in records:
        topic, partition, offset, *_ = source = record.source
        place = counted[topic, partition, offset]
        counted[topic, partition, offset] += 1
        named = source._replace(topic=f"{topic}{path}", offset=offset * PLACES + place)
        made.append(
            Deliverable(
                named,
                Consumed(
                    topic, partition, offset, record.timestamp, record.key, record.value, record.headers, source.size
                ),
            )
        )
    return made


def _answers(records: Sequence[StreamRecord], settlement: Settlement) -> list[Answer]:
    return [_answer(record, verdict) for record, verdict in zip(records, settlement.verdicts, strict=True)]


def _answer(record: StreamRecord, verdict: Verdict) -> Answer:
    match verdict.outcome:
        case Outcome.DROP:
            return Answer()
        case Outcome.DEAD_LETTER:
            return Answer(failed=replace(verdict, record=record.source))
        case _ if verdict.becomes is None:
            return Answer([(record.key, record.value)])
        case _:
            return Answer([(one.get("key", record.key), one.get("value")) for one in verdict.becomes])
