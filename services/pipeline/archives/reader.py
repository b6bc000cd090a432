"""Reads records of an archive in a task, like copying/origins.py: in the order of offsets, a few at a time.

A day holds records by their timestamp, so several days may share a range of offsets. Their files are merged, and each
file is opened when the first of its offsets is due. A file is read by row groups, and a row group by pages. So a task
holds at most one row group of each open file, however large a day is.

The catalogue names the files of each span before the task begins. If a file has been compacted since, the task lists
the archive again. Reading then resumes behind the last record that was yielded.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from mesh.judging.records import Headers
from services.pipeline.archives.catalogue import (
    MICROSECONDS_OF_A_MILLISECOND,
    WHAT,
    ArchiveReadError,
    Catalogue,
    row_group_bounds,
    scan,
    with_plain_times,
)
from services.pipeline.archives.layout import ArchivedFile
from services.pipeline.kafka.positions import RecordsLostError, Span, UnreachableError
from services.pipeline.kafka.reader import Batch
from services.pipeline.kafka.rows import GENERATION
from services.pipeline.storage.stores import Store

ROWS = 1_000  # yielded at once; fewer if they are large
BATCH_BYTES = 8 << 20
BUFFER_BYTES = 1 << 20  # of each column that is read
FAILURES = 20  # between one record and the next; after each the archive is listed anew
CREATE_TIME = 1  # the timestamp type; the archive does not keep the original type
NO_TIME = (0, -1)


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """An archived record with the methods of `confluent_kafka.Message`."""

    row: dict[str, Any]

    def topic(self) -> str:
        return str(self.row["topic"])

    def partition(self) -> int:
        return int(self.row["partition"])

    def offset(self) -> int:
        return int(self.row["offset"])

    def key(self) -> bytes | None:
        key: bytes | None = self.row["key"]
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self.row["value"]
        return value

    def headers(self) -> Headers | None:
        return [(header["key"], header["value"]) for header in self.row["headers"] or ()]

    def timestamp(self) -> tuple[int, int]:
        microseconds: int | None = self.row["timestamp"]
        return NO_TIME if microseconds is None else (CREATE_TIME, microseconds // MICROSECONDS_OF_A_MILLISECOND)


@dataclass(frozen=True, slots=True)
class ArchiveOrigin:
    """An archive, as a task gets it."""

    store: Store
    catalogue: Catalogue

    def reader(self) -> AbstractContextManager[ArchiveReader]:
        return closing(ArchiveReader(self.store, self.catalogue))


class ArchiveReader:
    """A RecordReader."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._opened = store.open()
        self._catalogue = catalogue

    def close(self) -> None:
        """Does nothing: each file is closed when it has been read."""

    def read(self, spans: Sequence[Span]) -> Iterator[Batch | None]:
        for span in spans:
            yield from self._read(span)

    def _read(self, span: Span) -> Iterator[Batch | None]:
        position, failures = span.start, 0
        while position < span.end:
            try:
                for batch in self._from(span, position):
                    yield batch
                    position, failures = batch.position, 0
                self._check_end(span)
                yield Batch(span.topic, span.partition, [], span.end)
                return
            except OSError as error:  # some stores report a missing file only at a later read
                failures += 1
                if failures > FAILURES:
                    raise UnreachableError(f"{span} stands at offset {position} of {span.end}: {error}") from error
                self._list_anew()

    def _list_anew(self) -> None:
        self._catalogue = scan(self._store).only({each.topic for each in self._catalogue.holdings()})

    def first_not_older(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The offset of the first record that is not older; reads only the small columns."""
        failures = 0
        while True:
            try:
                return self._first_not_older(topic, partition, time_ms)
            except OSError as error:
                failures += 1
                if failures > FAILURES:
                    raise UnreachableError(f"the archive of {topic}/{partition} can't be read: {error}") from error
                self._list_anew()

    def _first_not_older(self, topic: str, partition: int, time_ms: int) -> int | None:
        best: int | None = None
        end = self._catalogue.end(topic, partition)
        for file, held in self._catalogue.covering(topic, partition, 0, end):
            if end <= held.first:
                break
            if held.latest_ms is None or held.latest_ms < time_ms:
                continue
            for rows in self._rows(file, Span(topic, partition, held.first, end), WHAT):
                least = time_ms * MICROSECONDS_OF_A_MILLISECOND
                found = rows.filter(pyarrow.compute.greater_equal(rows.column("timestamp"), least))
                if found.num_rows:
                    best = end = int(found.column("offset")[0].as_py())
                    break
        return best

    def _check_end(self, span: Span) -> None:
        """RecordsLostError unless the archive has been filled up to the end of `span`."""
        reached = self._catalogue.end(span.topic, span.partition)
        if reached < span.end:
            raise RecordsLostError(
                f"{span} is archived up to offset {reached}, and was to be read up to {span.end}: archive it first"
            )

    def _from(self, span: Span, position: int) -> Iterator[Batch]:
        records: list[ArchivedRecord] = []
        size = 0
        for stretch in self._stretches(Span(span.topic, span.partition, position, span.end)):
            records += stretch
            size += sum(len(each.value() or b"") for each in stretch)
            if len(records) >= ROWS or size >= BATCH_BYTES:
                yield Batch(span.topic, span.partition, records, records[-1].offset() + 1)
                records, size = [], 0
        if records:
            yield Batch(span.topic, span.partition, records, records[-1].offset() + 1)

    def _stretches(self, span: Span) -> Iterator[Sequence[ArchivedRecord]]:
        """Records in the order of offsets; a sequence ends before the next offset of another file."""
        to_open = deque(self._catalogue.covering(span.topic, span.partition, span.start, span.end))
        opened: list[_OpenFile] = []
        with ExitStack() as files:
            while to_open or opened:
                while to_open and (not opened or to_open[0][1].first <= opened[0].next_offset):
                    archived, _held = to_open.popleft()
                    _go_on(opened, _OpenFile(files.enter_context(closing(self._rows(archived, span)))))
                if opened:
                    file = heapq.heappop(opened)
                    due = [each.next_offset for each in opened[:1]] + [held.first for _file, held in islice(to_open, 1)]
                    if (limit := min(due, default=span.end)) <= file.next_offset:
                        raise ArchiveReadError(f"{span} has offset {file.next_offset} in two files of the archive")
                    yield file.take_before(limit)
                    _go_on(opened, file)

    def _rows(
        self, archived: ArchivedFile, span: Span, columns: Sequence[str] | None = None
    ) -> Generator[pyarrow.RecordBatch, None, None]:
        """Rows of `span`, in the order of offsets."""
        with (
            self._open(archived) as file,
            pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as parquet,
        ):
            generation = next(each.generation for each in archived.holdings if each.topic == span.topic)
            if columns is not None and GENERATION in parquet.schema_arrow.names:
                columns = [*columns, GENERATION]
            groups = [
                number
                for number in range(parquet.num_row_groups)
                if _may_have(row_group_bounds(parquet.metadata.row_group(number)), span)
            ]
            for rows in parquet.iter_batches(ROWS, row_groups=groups, columns=columns, use_threads=False):
                yield with_plain_times(rows.filter(_is_of(rows, span, generation)))

    def _open(self, archived: ArchivedFile) -> Any:
        """Opens the file at the first path that exists; FileNotFoundError if none exists."""
        *before, last = archived.paths
        for path in before:
            try:
                return self._opened.open(path)
            except FileNotFoundError:
                continue
        return self._opened.open(last)


class _OpenFile:
    """A file and the records of it that are read next."""

    def __init__(self, chunks: Iterator[pyarrow.RecordBatch]) -> None:
        self._chunks = chunks
        self._offsets: list[int] = []
        self._records: list[ArchivedRecord] = []
        self._taken = 0

    def has_more(self) -> bool:
        while self._taken == len(self._records):
            rows = next(self._chunks, None)
            if rows is None:
                return False
            self._records = [ArchivedRecord(row) for row in rows.to_pylist()]
            self._offsets = rows.column("offset").to_pylist()
            self._taken = 0
        return True

    @property
    def next_offset(self) -> int:
        return self._offsets[self._taken]

    def take_before(self, offset: int) -> Sequence[ArchivedRecord]:
        start, self._taken = self._taken, bisect_left(self._offsets, offset, self._taken)
        return self._records[start : self._taken]

    def __lt__(self, other: _OpenFile) -> bool:
        return self.next_offset < other.next_offset


def _go_on(opened: list[_OpenFile], file: _OpenFile) -> None:
    if file.has_more():
        heapq.heappush(opened, file)


def _may_have(bounds: Any, span: Span) -> bool:
    wanted = {
        "topic": (span.topic, span.topic),
        "partition": (span.partition,) * 2,
        "offset": (span.start, span.end - 1),
    }
    return all(
        name not in bounds or (bounds[name][0] <= greatest and least <= bounds[name][1])
        for name, (least, greatest) in wanted.items()
    )


def _is_of(rows: pyarrow.RecordBatch, span: Span, generation: int) -> Any:
    compute = pyarrow.compute
    conditions = [
        compute.equal(rows.column("topic"), span.topic),
        compute.equal(rows.column("partition"), span.partition),
        compute.greater_equal(rows.column("offset"), span.start),
        compute.less(rows.column("offset"), span.end),
    ]
    if GENERATION in rows.schema.names:
        conditions.append(compute.equal(rows.column(GENERATION), generation))
    found = conditions[0]
    for each in conditions[1:]:
        found = compute.and_(found, each)
    return found
