"""How a topology asks the backend, and what the answers mean: a record that goes on, others in its place, or none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from services.sidecar.consuming.records import Consumed, Partition
from services.sidecar.delivering.deliverer import Deliverer
from services.sidecar.delivering.records import Batch, Deliverable, Outcome, ReplyRecord, Settlement, Verdict
from services.sidecar.streams.records import StreamRecord

PLACES = 1_000_000
"""Records that one record of Kafka may become before a hook, each with a place of its own in the Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the backend says of one record."""

    becomes: Sequence[tuple[Any, Any]] = ()
    """Keys and values that go on in its place."""
    failed: Verdict | None = None
    """That it is a dead letter, and why."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What it says of all that it was asked about."""

    of_records: Sequence[Answer]
    replies: Sequence[ReplyRecord] = ()
    """What it wants written besides."""


class Backend(Protocol):
    """Whom hooks ask, on the event loop."""

    async def ask(self, path: str, records: Sequence[StreamRecord]) -> Answers:
        """An answer for each record of a task, when all of them have one; it may take as long as it does."""


class DeliveredBackend:
    """The backend beside this sidecar, asked as by the reactive consumer: attempts, isolation, circuit."""

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
    """As the delivery engine takes them: its Idempotency-Key is made of topic, partition and offset, and here several
    records may go back to one of Kafka's, and to several hooks.
    """
    counted: Counter[tuple[str, int, int]] = Counter()
    made = []
    for record in records:
        topic, partition, offset, *_ = source = record.source
        place = counted[topic, partition, offset]
        counted[topic, partition, offset] += 1
        named = source._replace(topic=f"{topic}{path}", offset=offset * PLACES + place)
        size = len(source.key or b"") + len(source.value or b"")
        made.append(
            Deliverable(
                named,
                Consumed(topic, partition, offset, record.timestamp, record.key, record.value, record.headers, size),
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
