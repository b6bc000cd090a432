"""The seam between what holds records and what copies them: Kafka and the archive are read alike.

A reader is made in the task that reads, on any machine, from an origin that is pickled and so is plain data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from mesh.judging.records import Headers, Record
from services.pipeline.kafka_reading import Batch
from services.pipeline.positions import PartitionLog, Place, Span, Stamp

__all__ = ["Archive", "Batch", "Headers", "Origin", "Place", "Record", "RecordReader"]


class RecordReader(Protocol):
    """Reads spans of partitions, in order within each of them; between them in any order, side by side or not.

    Not to be used by several threads.
    """

    def read(self, spans: Sequence[Span]) -> Iterator[Batch | None]:
        """Ends when each span has been read up to its end. None at least each second that nothing comes, so that who
        copies can end a transaction. Errors of `positions` when a span can't be read, or is not there any more.
        """


class Origin(Protocol):
    """Where records are, as a task is told. Is pickled: plain data, no connection."""

    def reader(self) -> AbstractContextManager[RecordReader]:
        """To be left when all is read, or not; it closes what was opened."""


class Archive(Protocol):
    """What a driver asks of an archive before it makes its plan. Topics as clients know them. Errors of `positions`."""

    def anew(self) -> Archive:
        """As it is now: what was asked before is not remembered."""

    def extents(self, topics: Collection[str]) -> Mapping[Place, PartitionLog]:
        """Of each partition that it has: the first offset that it holds, and the one behind its last."""

    def offsets_for_times(self, times: Mapping[Place, int]) -> Mapping[Place, int]:
        """For milliseconds since 1970: the offset of the first archived record that is not older, -1 where none is."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Kafka's ids of the topics that were archived; those that are not known are left out."""

    def last(self, topics: Collection[str]) -> Mapping[Place, Stamp]:
        """The records with the latest times that partitions had when they were archived, where ids tell nothing."""

    @property
    def origin(self) -> Origin:
        """For the tasks."""
