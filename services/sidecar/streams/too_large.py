"""Records of a round that are too large for Kafka, and their replacements when the round begins again.

A record whose output, or whose reply, is too large becomes a dead letter with the reason `oversize`. A dead letter that
is too large is written in its next smaller form. No I/O.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.delivering.writing import size_of
from services.sidecar.producing.transactional_client import TopicRecords
from services.sidecar.records import Failed, Outcome, RawRecord, Reason, Verdict, WriteOutcome

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Origin(NamedTuple):
    """The origin of a record in a round's transaction."""

    record: RawRecord | None
    """The record that was read; None for a reply that belongs to no record."""
    is_reply: bool = False
    letter: ReplyRecord | None = None
    """The dead letter, if the record is a dead letter."""


class Oversize(NamedTuple):
    """The reason why a record cannot be processed: its output, or its reply, is too large."""

    verdict: Verdict
    is_reply: bool
    """Whether the backend wanted the large record, not the topology's code."""


class TooLarge:
    """The too large records of one worker's round."""

    def __init__(self) -> None:
        self._oversize: dict[Place, Oversize] = {}
        self._shrunk: dict[Place, int] = {}

    def learn(
        self,
        entries: Sequence[TopicRecords],
        origins: Sequence[Sequence[Origin]],
        outcomes: Sequence[Sequence[WriteOutcome]],
    ) -> bool:
        """Learns from an aborted transaction. Whether the round will be smaller when it begins again.

        A broker refuses a batch as a whole. So of all records that were refused for their size, only the largest are
        certainly too large.
        """
        refused = [
            (size_of(record), entry.topic, origin)
            for entry, of_entry, outcome in zip(entries, origins, outcomes, strict=False)
            for record, origin, one in zip(entry.records, of_entry, outcome, strict=True)
            if isinstance(one, Failed) and one.too_large and _may_shrink(origin)
        ]
        largest = max((size for size, _, _ in refused), default=0)
        for size, topic, origin in refused:
            if 2 * size >= largest and origin.record is not None:
                self._put(origin.record, origin, topic, size)
        return bool(refused)

    def of(self, record: RawRecord) -> Oversize | None:
        """The reason why a record cannot be processed, if an earlier attempt has shown it."""
        return self._oversize.get(_place(record))

    def fitting(self, record: RawRecord, letter: ReplyRecord) -> ReplyRecord:
        """A record's dead letter, in the largest form that Kafka has not refused."""
        for _ in range(self._shrunk.get(_place(record), 0)):
            letter = (letter.smaller() if letter.smaller is not None else None) or letter
        return letter

    def committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Forgets records before these offsets, which are not read again."""
        for known in (self._oversize, self._shrunk):
            for place in [one for one in known if one[2] < offsets.get(one[:2], 0)]:
                del known[place]

    def _put(self, record: RawRecord, origin: Origin, topic: str, size: int) -> None:
        place = _place(record)
        if origin.letter is not None:
            self._shrunk[place] = self._shrunk.get(place, 0) + 1
            return
        who = "the backend wants" if origin.is_reply else "the topology wants"
        why = f"{who} a record of {size} bytes written to {topic}: it is too large for Kafka"
        now = time.time_ns() // 1_000_000
        verdict = Verdict(record, Outcome.DEAD_LETTER, Reason.OVERSIZE, why, first_failure=now)
        self._oversize[place] = Oversize(verdict, origin.is_reply)


def _place(record: RawRecord) -> Place:
    return record.topic, record.partition, record.offset


def _may_shrink(origin: Origin) -> bool:
    if origin.letter is not None:
        return origin.letter.smaller is not None
    return origin.record is not None
