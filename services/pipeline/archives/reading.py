"""Records of an archive, read in a task as copying/reading.py has it: in the order of offsets, a few at a time.

A file is read by its row groups, a row group by its pages, so a task holds no more than a row group's worth, however
large a day is. What a span needs is known beforehand (the catalogue comes along); a file that has been compacted since
is found again by listing the archive, and reading goes on behind the last record that was handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from services.pipeline.archives.catalogue import (
    MICROSECONDS_OF_A_MILLISECOND,
    WHAT,
    Catalogue,
    row_group_bounds,
    scan,
    with_plain_times,
)
from services.pipeline.archives.layout import ArchivedFile
from services.pipeline.archives.stores import Store
from services.pipeline.copying.reading import Batch, Headers
from services.pipeline.positions import RecordsLostError, Span

ROWS = 1_000  # handed out at once
BUFFER_BYTES = 1 << 20  # of each column that is read
FAILURES = 20  # between one record and the next; after each the archive is listed anew
LAST_OFFSET = 2**63 - 1
CREATE_TIME = 1  # the kind of time; which it was is not archived
NO_TIME = (0, -1)


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """As `confluent_kafka.Message` has it."""

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
    """An archive, as a task is told of it."""

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
        """Files are closed when they have been read; nothing else is open."""

    def read(self, spans: Sequence[Span]) -> Iterator[Batch | None]:
        for span in spans:
            yield from self._read(span)

    def _read(self, span: Span) -> Iterator[Batch | None]:
        position, failures = span.start, 0
        while position < span.end:
            try:
                for batch in self._from(span, position):
                    yield batch
                    if batch is not None:
                        position, failures = batch.position, 0
                self._check_end(span)
                yield Batch(span.topic, span.partition, [], span.end)
                return
            except OSError as error:  # some stores miss a file only when they read on
                failures += 1
                if failures > FAILURES:
                    raise RecordsLostError(f"{span} stands at offset {position} of {span.end}: {error}") from error
                self._catalogue = scan(self._store).only({each.topic for each in self._catalogue.holdings()})

    def first_not_older(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The offset of the first record that is not older; of the columns only the small ones are read."""
        everything = Span(topic, partition, 0, LAST_OFFSET)
        for file, held in self._catalogue.covering(topic, partition, everything.start, everything.end):
            if held.latest_ms is None or held.latest_ms < time_ms:
                continue
            for rows in self._rows(file, everything, WHAT):
                times = rows.column("timestamp")
                found = rows.filter(pyarrow.compute.greater_equal(times, time_ms * MICROSECONDS_OF_A_MILLISECOND))
                if found.num_rows:
                    return int(found.column("offset")[0].as_py())
        return None

    def _check_end(self, span: Span) -> None:
        """RecordsLostError unless the archive has been filled up to the end of `span`."""
        known = self._catalogue.position.get(span.topic)
        ends = [each.last + 1 for each in self._catalogue.holdings() if (each.topic, each.partition) == _place(span)]
        reached = max([*ends, known.next.get(span.partition, 0) if known else 0])
        if reached < span.end:
            raise RecordsLostError(
                f"{span} is archived up to offset {reached}, and was to be read up to {span.end}: archive it first"
            )

    def _from(self, span: Span, position: int) -> Iterator[Batch | None]:
        for file, _held in self._catalogue.covering(span.topic, span.partition, position, span.end):
            for rows in self._rows(file, Span(span.topic, span.partition, position, span.end)):
                if rows.num_rows == 0:
                    yield None
                    continue
                records = [ArchivedRecord(row) for row in rows.to_pylist()]
                yield Batch(span.topic, span.partition, records, records[-1].offset() + 1)

    def _rows(
        self, archived: ArchivedFile, span: Span, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Rows of `span` in their order."""
        with (
            self._open(archived) as file,
            pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as parquet,
        ):
            groups = [
                number
                for number in range(parquet.num_row_groups)
                if _may_have(row_group_bounds(parquet.metadata.row_group(number)), span)
            ]
            for rows in parquet.iter_batches(ROWS, row_groups=groups, columns=columns, use_threads=False):
                yield with_plain_times(rows.filter(_is_of(rows, span)))

    def _open(self, archived: ArchivedFile) -> Any:
        """Where it is; FileNotFoundError when it is nowhere any more."""
        *before, last = archived.paths
        for path in before:
            try:
                return self._opened.open(path)
            except FileNotFoundError:
                continue
        return self._opened.open(last)


def _place(span: Span) -> tuple[str, int]:
    return span.topic, span.partition


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


def _is_of(rows: pyarrow.RecordBatch, span: Span) -> Any:
    compute = pyarrow.compute
    conditions = [
        compute.equal(rows.column("topic"), span.topic),
        compute.equal(rows.column("partition"), span.partition),
        compute.greater_equal(rows.column("offset"), span.start),
        compute.less(rows.column("offset"), span.end),
    ]
    found = conditions[0]
    for each in conditions[1:]:
        found = compute.and_(found, each)
    return found
