"""One look at the records of a topic, within bounds. It waits, so it runs in a thread.

Theory of operation
1. The ends of the partitions are asked once, and the look goes no further, so it ends on a topic that grows.
2. Forward, the look takes records until the page is full. The next page begins where this look stopped.
3. Nobody can read a log from its end. Backward, the look reads the last offset of each partition, then the 8 offsets
   before it, the 64 before these, and so on, until the page is full: not each offset has a record that fits. A part
   that a bound cuts short does not count, since its newest records are missing.
4. Records of several partitions stand in the order of their times, and those of one partition by their offsets.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mesh.judging.records import Headers, Record
from services.console.asking import wrong
from services.console.outcomes import CONSOLE, GATEWAY, CallError, Ending
from services.console.records import decoding
from services.console.records.kafka import QUESTION_S, STEP_S, Client, is_end, is_of_group, refusal
from services.console.records.wanted import Bounds, Found, Start, Wanted

GROWTH = 8
"""A part is so many times as long as the one that was read before it."""


class Judging:
    """A filter that sees values as their schemas have them."""

    def __init__(self, text: str, look: decoding.Look) -> None:
        """CallError: the text is no filter."""
        from mesh.judging.filters import Filter  # with CEL, 6 MB, which a look without a filter needs not
        from mesh.judging.values import UnreadableError, read_json
        from mesh.record_expressions import InvalidExpressionError

        self.look = look
        self._headers: Headers | None = None

        def read_value(value: bytes) -> object:
            try:
                document = self.look.document("value", value, self._headers)
            except decoding.UndecodedError as error:
                raise UnreadableError(str(error)) from None
            return read_json(value) if document is None else document.plain

        try:
            self._filter = Filter(text, read_value)
        except InvalidExpressionError as error:
            raise wrong("filter", str(error)) from None

    def __call__(self, record: Record) -> bool:
        self._headers = record.headers()
        return self._filter(record)


def judge_of(text: str, look: decoding.Look) -> Judging | None:
    """The filter. CallError: the text is none."""
    return Judging(text, look) if text else None


@dataclass(slots=True)
class Tally:
    """The cost of a look so far, and the records that its filter can't judge."""

    bounds: Bounds
    deadline: float
    scanned: int = 0
    size: int = 0
    undecided: int = 0
    why: str = ""

    def take(self, record: Record) -> None:
        self.scanned += 1
        self.size += len(record.key() or b"") + len(record.value() or b"")

    @property
    def bound(self) -> str:
        """The bound that is reached, in words."""
        if self.scanned >= self.bounds.records:
            return f"{self.bounds.records:,} records were read"
        if self.size >= self.bounds.size:
            return f"{self.size:,} bytes were read"
        return f"{self.bounds.seconds:g} s have passed" if time.monotonic() >= self.deadline else ""

    def fits(self, judge: Judging | None, record: Record) -> bool:
        if judge is None:
            return True
        from mesh.judging.records import UnjudgedError

        try:
            return judge(record)
        except UnjudgedError as error:
            self.undecided += 1
            self.why = self.why or str(error)
            return False


def read(client: Client, wanted: Wanted, bounds: Bounds, schemas: decoding.Schemas) -> Found:
    """CallError: a field is wrong, or the gateway refuses or does not answer."""
    decoder = schemas.look(bounds.seconds)
    judge = judge_of(wanted.filter, decoder)
    consumer = client.consumer(committed=wanted.committed)
    try:
        look = Look(client, consumer, wanted, judge, Tally(bounds, time.monotonic() + bounds.seconds))
        found = look.backward() if wanted.start in (Start.NEWEST, Start.BEFORE) else look.forward()
        return replace(found, contents=decoder.places(found.records))
    finally:
        consumer.close()


@dataclass(slots=True)
class Look:
    """One look, under way."""

    client: Client
    consumer: Any
    wanted: Wanted
    judge: Judging | None
    tally: Tally
    about: str = ""
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topic = self.wanted.topic
        self.about = f"topic {topic!r}"
        for each in self.client.chosen(self.consumer, self.wanted, self.tally.deadline):
            self.ends[each] = self.client.ends(self.consumer, topic, each)

    def forward(self) -> Found:
        at = self._starts()
        todo = {each: end for each, (_, end) in self.ends.items() if at[each] < end}
        found = self._range(at, todo, self.wanted.most)
        rest = {each: at[each] for each, (_, end) in self.ends.items() if at[each] < end}
        records = _merged(found, newest_first=False)
        return self._found(records, rest and at, is_full=len(records) >= self.wanted.most)

    def backward(self) -> Found:
        before = dict(self.wanted.positions) if self.wanted.start is Start.BEFORE else {}
        stops = {each: min(before.get(each, end), end) for each, (_, end) in self.ends.items()}
        found: list[Record] = []
        reached, length = dict(stops), 1
        while len(found) < self.wanted.most and not self.tally.bound:
            lower = {each: max(self.ends[each][0], stop - length) for each, stop in reached.items()}
            todo = {each: stop for each, stop in reached.items() if lower[each] < stop}
            if not todo:
                break
            at = dict(lower)
            part = self._range(at, todo, None)
            whole = {each for each, stop in todo.items() if at[each] >= stop}
            found += [record for record in part if record.partition() in whole]
            reached |= {each: lower[each] for each in whole}
            length *= GROWTH
        ordered = _merged(found, newest_first=True)
        records, others = ordered[: self.wanted.most], ordered[self.wanted.most :]
        on = reached | {each.partition(): stops[each.partition()] for each in others}
        for record in records:
            on[record.partition()] = min(on[record.partition()], record.offset())
        is_end = all(position <= self.ends[each][0] for each, position in on.items())
        return self._found(records, {} if is_end else on, is_full=len(records) >= self.wanted.most)

    def _found(self, records: list[Record], on: Mapping[int, int], *, is_full: bool) -> Found:
        tally = self.tally
        bound = "" if is_full or not on else tally.bound
        return Found(records, self.ends, on, tally.scanned, bound, tally.undecided, tally.why)

    def _starts(self) -> dict[int, int]:
        """The first offset of each partition. CallError: an offset is out of range."""
        wanted = self.wanted
        match wanted.start:
            case Start.OFFSET:
                return {each: self._checked(each, wanted.offset) for each in self.ends}
            case Start.AFTER:
                said = {each: wanted.positions.get(each, first) for each, (first, _) in self.ends.items()}
                return {each: max(offset, self.ends[each][0]) for each, offset in said.items()}
            case Start.TIME:
                asked = [self._at(each, wanted.time_ms) for each in self.ends]
                answers = self._ask(lambda: self.consumer.offsets_for_times(asked, QUESTION_S))
                for each in answers:
                    if each.error is not None:
                        raise refusal(each.error, self.about)
                return {
                    each.partition: each.offset if each.offset >= 0 else self.ends[each.partition][1]
                    for each in answers
                }
        return {each: first for each, (first, _) in self.ends.items()}

    def _checked(self, partition: int, offset: int) -> int:
        first, end = self.ends[partition]
        if first <= offset < end:
            return offset
        held = f"has the offsets {first:,} to {end - 1:,}" if first < end else f"has no records, and its end is {end:,}"
        text = f"partition {partition} of {self.about} {held}; {offset:,} is out of range"
        raise CallError(Ending.REFUSED, "OFFSET_OUT_OF_RANGE", f"offset: {text}.", by=CONSOLE)

    def _range(self, at: dict[int, int], stops: Mapping[int, int], most: int | None) -> list[Record]:
        """Reads from `at`, which moves, to `stops`, until `most` records fit. CallError."""
        found: list[Record] = []
        todo = dict(stops)
        self.consumer.assign([self._at(each, at[each]) for each in todo])
        while todo and not self.tally.bound:
            message = self._ask(lambda: self.consumer.poll(STEP_S))
            self.client.check(self.about)
            if message is None or ((error := message.error()) is not None and is_of_group(error)):
                continue
            if error is not None and not is_end(error):
                raise refusal(error, self.about)
            partition = message.partition()
            if partition not in todo:
                continue
            if error is not None or message.offset() >= todo[partition]:
                at[partition] = todo.pop(partition)
                continue
            at[partition] = message.offset() + 1
            if at[partition] >= todo[partition]:
                del todo[partition]
            self.tally.take(message)
            if self.tally.fits(self.judge, message):
                found.append(message)
                if len(found) == most:
                    break
        if todo and not self.tally.scanned and self.client.trouble:
            raise CallError(Ending.AWAY, "_TIMED_OUT", f"{self.about}: {self.client.trouble}.", by=GATEWAY)
        return found

    def _at(self, partition: int, offset: int | None = None) -> Any:
        return self.client.place(self.wanted.topic, partition, offset)

    def _ask(self, question: Any) -> Any:
        return self.client.ask(question, self.about)


def _merged(records: Iterable[Record], *, newest_first: bool) -> list[Record]:
    """By time, but those of one partition by their offsets, whatever their times are."""
    by_partition: dict[int, list[Record]] = {}
    for record in records:
        by_partition.setdefault(record.partition(), []).append(record)
    lists = [sorted(each, key=lambda record: record.offset(), reverse=newest_first) for each in by_partition.values()]
    sign = -1 if newest_first else 1
    return list(heapq.merge(*lists, key=lambda record: sign * record.timestamp()[1]))
