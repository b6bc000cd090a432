"""The interface between the stores of records and the code that copies: Kafka and the archive are read alike.

A task makes a reader on any machine, from an origin. Origins are plain data, because they are pickled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from services.pipeline.kafka.positions import PartitionLog, Place, Span, Stamp
from services.pipeline.kafka.reader import Batch


class RecordReader(Protocol):
    """Reads spans of partitions: each span in the order of offsets; different spans in any order or interleaved.

    A reader is not safe for several threads.
    """

    def read(self, spans: Sequence[Span]) -> Iterator[Batch | None]:
        """Ends when each span has been read up to its end.

        Yields None at least each second while nothing arrives, so that the caller can end a transaction. Errors of
        `positions` if a span can't be read, or has been deleted.
        """


class Origin(Protocol):
    """The source of records, as a task gets it. Pickled: plain data, no connection."""

    def reader(self) -> AbstractContextManager[RecordReader]:
        """A reader as a context manager, which closes what it opened at its exit, also before the end of the spans."""


class Archive(Protocol):
    """A driver's view of the archive before it makes a plan.

    Topics have the names of clients. Errors of `positions`.
    """

    def anew(self) -> Archive:
        """The current archive; earlier answers are dropped."""

    def extents(self, topics: Collection[str]) -> Mapping[Place, PartitionLog]:
        """The first archived offset of each partition, and the end of its archived offsets."""

    def offsets_for_times(self, times: Mapping[Place, int]) -> Mapping[Place, int]:
        """For times in ms since 1970: the offset of the first archived record that is not older, -1 if none is."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Kafka's ids of the archived topics; unknown ids are left out."""

    def last(self, topics: Collection[str]) -> Mapping[Place, Stamp]:
        """For topics without ids: the record with the latest time of each partition when it was archived."""

    @property
    def origin(self) -> Origin:
        """The origin for the tasks."""
