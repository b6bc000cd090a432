"""The live tail: records of a topic as they come, at a rate that a person can follow. No more than the bounds.

Theory of operation
1. A tail begins at the end of each partition. It asks for records in turns of a second.
2. A turn reads no more than its bound. What comes faster waits at the gateway, not in this process.
3. A tail that is too far behind goes to the end, and says how many offsets it has passed over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mesh.judging.records import Record
from services.console.records.decoding import Places, Schemas
from services.console.records.kafka import Client, is_end, is_of_group, refusal
from services.console.records.reading import Judging, Tally, judge_of
from services.console.records.wanted import Bounds, Wanted

TURN_S = 1.0
WAIT_MS = 500
SCANNED = 50
"""With a filter, a turn reads so many times as many records as it may show."""
BEHIND_TURNS = 5
"""A tail that is so many turns behind goes to the end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The records of a turn."""

    records: Sequence[Record]
    passed: int = 0
    """Offsets that the tail has passed over."""
    why: str = ""
    """Why the filter can't judge a record."""
    contents: Places = field(default_factory=dict)


@dataclass(slots=True)
class Tail:
    """One tail. Its calls wait, so they run in threads."""

    client: Client
    wanted: Wanted
    rate: int
    """Records of a turn."""
    schemas: Schemas
    consumer: Any = None
    judge: Judging | None = None
    about: str = ""
    partitions: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """A viewer may leave in the middle of a turn: the end waits for the turn."""

    def begin(self, seconds: float) -> None:
        """CallError."""
        with self.lock:
            self._begin(seconds)

    def turn(self) -> Turn:
        """CallError."""
        with self.lock:
            return self._turn()

    def end(self) -> None:
        with self.lock:
            if self.consumer is not None:
                self.consumer.close()

    def _begin(self, seconds: float) -> None:
        self.about = f"topic {self.wanted.topic!r}"
        self.judge = judge_of(self.wanted.filter, self.schemas.look(TURN_S))
        self.consumer = self.client.consumer(committed=self.wanted.committed, wait_ms=WAIT_MS)
        self.partitions = self.client.chosen(self.consumer, self.wanted, time.monotonic() + seconds)
        self._go_to_ends()

    def _turn(self) -> Turn:
        most = self.rate * (SCANNED if self.judge is not None else 1)
        tally = Tally(Bounds(most, 1 << 24, TURN_S), time.monotonic() + TURN_S)
        found: list[Record] = []
        look = self.schemas.look(TURN_S)
        if self.judge is not None:
            self.judge.look = look
        while len(found) < self.rate and not tally.bound:
            message = self.client.ask(lambda: self.consumer.poll(TURN_S / 4), self.about)
            self.client.check(self.about)
            if message is None:
                if found:
                    break
                continue
            if (error := message.error()) is not None:
                if not is_end(error) and not is_of_group(error):
                    raise refusal(error, self.about)
                continue
            tally.take(message)
            if tally.fits(self.judge, message):
                found.append(message)
        passed = 0
        if len(found) >= self.rate or tally.scanned >= most:
            passed = self._behind()
            passed = passed if passed > most * BEHIND_TURNS else 0
        if passed:
            self._go_to_ends()
        return Turn(found, passed, tally.why, look.places(found))

    def _behind(self) -> int:
        """Offsets between the records that were read and the ends, as far as the client knows."""
        behind = 0
        for each in self.consumer.position(self.consumer.assignment()):
            _, end = self.consumer.get_watermark_offsets(each, cached=True)
            if each.offset >= 0 and end > each.offset:
                behind += end - each.offset
        return behind

    def _go_to_ends(self) -> None:
        topic = self.wanted.topic
        ends = {each: self.client.ends(self.consumer, topic, each)[1] for each in self.partitions}
        self.consumer.assign([self.client.place(topic, each, end) for each, end in ends.items()])
