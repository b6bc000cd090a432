"""Folds counters of many reports by minute, hour and day. No I/O, no Spark.

Theory of operation
1. A task folds its reports before it yields anything. The reports of a reporter follow each other in their partition.
   So six counters of a minute become one row, and the counters of an hour become one more row.
2. Hours are made of the minutes of the same fold, and days of its hours. They are never made of rows of a table.
3. The caller bounds a fold by taking its rows often enough (`len`). So several rows may have the same key, from one
   task or from several. The writer gets all rows in the order of their keys, and joins them (`joined`).
4. Latencies are KLL sketches, which wait to be settled together (`latencies.py`). A merged sketch keeps the error bound
   of a single one: 1.3 % of rank with `ACCURACY`.
5. A series is one combination of names, identified by their digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import IntEnum
from itertools import groupby
from operator import itemgetter

from services.pipeline.traffic.latencies import Latencies, settle, sound
from services.pipeline.traffic.reports import LONGEST_NAME, Counter, Who

MOST_WAITING = 4_000_000
"""Bytes of sketches that a fold holds before it settles them; a report is less than a megabyte."""
EPOCH = date(1970, 1, 1)
DAY_S = 86_400


class Step(IntEnum):
    """The interval of a row's sum, from the finest to the coarsest."""

    MINUTE = 1
    HOUR = 2
    DAY = 3


SECONDS = {Step.MINUTE: 60, Step.HOUR: 3_600, Step.DAY: DAY_S}
Row = tuple[int, int, str, int, int, int, int, bytes | None]
"""Step, time in seconds since 1970, series; records, bytes, calls, errors; the sketch. A row's key comes first."""
Names = tuple[str, ...]
"""Names of a series: the names of `Who`, and the reporter."""
_key = itemgetter(0, 1, 2)


class Sum(Latencies):
    """The sum of the counters of one series and time."""

    __slots__ = ("bytes", "calls", "errors", "records")

    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.bytes = 0
        self.calls = 0
        self.errors = 0

    def add(self, other: Sum) -> None:
        """Adds another sum, which must not be used afterwards."""
        self.records += other.records
        self.bytes += other.bytes
        self.calls += other.calls
        self.errors += other.errors
        if other.sketch is not None:
            self.merge(other.sketch)


Sums = dict[tuple[int, str], dict[Who, Sum]]
"""By time and reporter, and then by the other names."""


class Fold:
    """Sums of the reports of one task."""

    def __init__(self, begins: Mapping[Step, date]) -> None:
        """`begins`: the first day of each step that has rows."""
        self._begins = {step: (day - EPOCH).days * DAY_S for step, day in begins.items()}
        self._minutes: Sums = {}
        self._size = 0
        self._waiting = 0

    def __len__(self) -> int:
        """Number of sums that are held: each has about 3 kB."""
        return self._size

    def add(self, start: int, reporter: str, counters: Iterable[Counter]) -> None:
        """Adds counters of a report that began at `start`, in seconds since 1970; they count in that minute."""
        sums = self._minutes.setdefault((start - start % SECONDS[Step.MINUTE], reporter), {})
        before = len(sums)
        waiting = 0
        for counter in counters:
            client, principal, topic, rule, cluster, api, records, size, calls, errors, latency = counter
            who = (client, principal, topic, rule, cluster, api)
            found = sums.get(who)
            if found is None:
                found = sums[who] = Sum()
            found.records += records
            found.bytes += size
            found.calls += calls
            found.errors += errors
            if latency:
                found.waiting.append(latency)
                waiting += len(latency)
        self._size += len(sums) - before
        self._waiting += waiting
        if self._waiting > MOST_WAITING:
            self._settle()

    def take(self) -> tuple[Iterator[Row], dict[str, Names]]:
        """The rows so far, and the names of their series, which are complete when all rows are taken.

        Later counters go to new sums."""
        self._settle()
        series: dict[str, Names] = {}
        minutes, self._minutes, self._size = self._minutes, {}, 0
        return self._rows(minutes, series), series

    def _settle(self) -> None:
        self._waiting = 0
        settle(each for of_time in self._minutes.values() for each in of_time.values())

    def _rows(self, finest: Sums, series: dict[str, Names]) -> Iterator[Row]:
        ids: dict[tuple[Who, str], str] = {}
        sums = finest
        for step, coarser_s in zip(Step, (SECONDS[Step.HOUR], SECONDS[Step.DAY], 0), strict=True):
            coarser: Sums = {}
            while sums:
                (time, reporter), of_time = sums.popitem()
                is_kept = time >= self._begins[step]
                into = coarser.setdefault((time - time % coarser_s, reporter), {}) if coarser_s else None
                for who, each in of_time.items():
                    name = ids.get((who, reporter))
                    if name is None:
                        name, names = series_of(who, reporter)
                        ids[who, reporter] = name
                        series[name] = names
                    if is_kept:
                        yield (
                            step, time, name,
                            each.records, each.bytes, each.calls, each.errors, each.written(),
                        )  # fmt: skip
                    if into is None:
                        continue
                    found = into.get(who)
                    if found is None:
                        into[who] = each
                    else:
                        found.add(each)
            sums = coarser


def series_of(who: Who, reporter: str) -> tuple[str, Names]:
    """The digest, in hexadecimal, and the names as tables store them: without NUL, and not too long."""
    names = tuple(each[:LONGEST_NAME].replace("\0", "") for each in (*who, reporter))
    text = json.dumps(names, ensure_ascii=False, separators=(",", ":"))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), names


def joined(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows in the order of their keys, each key once."""
    for _, same in groupby(rows, _key):
        first, *others = same
        yield together([first, *others]) if others else first


def together(rows: Sequence[Row]) -> Row:
    """Joins rows of one key."""
    (step, time, series, *_), *_ = rows
    whole = Sum()
    for _, _, _, records, size, calls, errors, latency in rows:
        whole.records += records
        whole.bytes += size
        whole.calls += calls
        whole.errors += errors
        if latency and (sketch := sound(latency)) is not None:
            whole.merge(sketch)
    return step, time, series, whole.records, whole.bytes, whole.calls, whole.errors, whole.written()
