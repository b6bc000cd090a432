"""Dead letters and replies on their way to Kafka. A record that is too large for Kafka is replaced by a smaller form.

A broker refuses a batch of records as a whole, though one of them may be too large alone. So the largest of the refused
ones become smaller first, and the others are written again as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby

import structlog

from mesh.pauses import pause
from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.producing.transactional_client import TopicRecords
from services.sidecar.records import Failed, Outgoing, WriteOutcome
from services.sidecar.telemetry import metrics

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0

Send = Callable[[str, list[Outgoing]], Awaitable[list[WriteOutcome]]]
"""Writes to a topic, outside of transactions: one outcome per record."""
Refused = Callable[[str, Sequence[Failed]], None]
"""Called with the reason why records for a topic are not written yet. They are tried again unless the call raises."""

log = structlog.get_logger(__name__)


class Writes:
    """Records that are written together, topic by topic, in their order."""

    def __init__(self, writes: Iterable[ReplyRecord]) -> None:
        self._writes = sorted(writes, key=lambda one: one.topic)

    @property
    def entries(self) -> list[TopicRecords]:
        return [
            TopicRecords(topic, [one.record for one in group])
            for topic, group in groupby(self._writes, key=lambda one: one.topic)
        ]

    def smaller(self, outcomes: Iterable[Sequence[WriteOutcome]]) -> Writes | None:
        """The same writes, with smaller forms of the records that were too large.

        None if Kafka refused them for another reason, or if no smaller form is left. `outcomes`: one for each record of
        `entries`.
        """
        flat = [one for outcome in outcomes for one in outcome]
        made = smaller([(write, one) for write, one in zip(self._writes, flat, strict=True) if isinstance(one, Failed)])
        if made is None:
            return None
        written = (write for write, one in zip(self._writes, flat, strict=True) if not isinstance(one, Failed))
        return Writes([*written, *made])


def smaller(refused: Sequence[tuple[ReplyRecord, Failed]]) -> list[ReplyRecord] | None:
    """These records, with the largest of the too large records in their next form, or without them; None if none has
    such a form."""
    sizes = [size_of(write.record) if why.too_large and write.smaller is not None else 0 for write, why in refused]
    largest = max(sizes, default=0)
    if not largest:
        return None
    made = []
    for (write, why), size in zip(refused, sizes, strict=True):
        if write.smaller is None or 2 * size < largest:
            made.append(write)
            continue
        metrics.shrunk_writes.inc()
        log.warning("a record is too large for Kafka, and is replaced by a smaller one, or given up",
                    topic=write.topic, bytes=size, reason=why.text)  # fmt: skip
        if (replacement := write.smaller()) is not None:
            made.append(replacement)
    return made


async def write_all(send: Send, writes: Iterable[ReplyRecord], refused: Refused) -> None:
    """Returns when Kafka has all records.

    Written records are not written again. Retried records may end up behind later ones.
    """
    topics: dict[str, list[ReplyRecord]] = {}
    for one in writes:
        topics.setdefault(one.topic, []).append(one)
    await asyncio.gather(*(_write(send, topic, records, refused) for topic, records in topics.items()))


async def _write(send: Send, topic: str, writes: list[ReplyRecord], refused: Refused) -> None:
    failures = 0
    while writes:
        outcomes = await send(topic, [one.record for one in writes])
        failed = [(one, why) for one, why in zip(writes, outcomes, strict=True) if isinstance(why, Failed)]
        if not failed:
            return
        made = smaller(failed)
        if made is None:
            refused(topic, [why for _, why in failed])
            writes = [one for one, _ in failed]
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
            continue
        writes = [one for one in made if one.topic == topic]
        await write_all(send, [one for one in made if one.topic != topic], refused)  # a reply has become a dead letter


def size_of(record: Outgoing) -> int:
    """The size in bytes, approximately: without Kafka's overhead for each record."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return max(record.size + headers, 1)
