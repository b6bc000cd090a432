"""Makes a copy of a record: filter, transforms, headers, time, partition. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from mesh.judging.filters import Filter
from mesh.judging.records import Content, Headers, Record, UnjudgedError
from mesh.judging.transforms import Transforms
from mesh.rpc import replays
from services.pipeline.copying.errors import CopyError
from services.pipeline.copying.routes import Route

SOURCE_HEADER = "mesh-replay-source"
"""cluster/topic/partition/offset of the original."""
TIME_HEADER = "mesh-replay-timestamp"
"""The original's time in milliseconds since 1970, if the copy has another time."""
CLIENTS_CHOICE = -1
"""Replaces a partition: the producer chooses the partition by the key."""
TIME_OF_WRITING = 0
"""Replaces a time; so a record of the first millisecond of 1970 is re-timed."""


class Copy(NamedTuple):
    """The content of a copy."""

    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: Headers


class Shape:
    """Makes copies of one route's records."""

    def __init__(self, route: Route, copy: replays.ReplayToTopic, target_partitions: int) -> None:
        """ValueError for an invalid filter or transform."""
        self._prefix = f"{route.source_cluster}/{route.source_topic}/"
        self._filter = Filter(copy.filter) if copy.filter else None
        self._transforms = Transforms(copy.transforms) if copy.transforms else None
        self._retimed = copy.timestamps == replays.REPLAY_TIMESTAMPS_NOW
        self._by_key = copy.partitioning == replays.REPLAY_PARTITIONING_BY_KEY
        self._target_partitions = target_partitions
        self.takes_all = self._filter is None
        self.is_plain = not (self._filter or self._transforms or self._retimed or self._by_key)
        """Whether copies differ from their originals by the source header only."""

    def source_of(self, partition: int) -> bytes:
        """The source header of a partition's records, without the offset."""
        return f"{self._prefix}{partition}/".encode()

    def takes(self, record: Record) -> bool:
        """Whether the record passes the filter. CopyError: the filter can't be applied."""
        if self._filter is None:
            return True
        try:
            return self._filter(record)
        except UnjudgedError as error:
            raise _stopped(record, error) from None

    def __call__(self, record: Record) -> Copy:
        """The copy of a record that passed the filter. CopyError: a transform can't be applied."""
        content = Content(record.value(), record.headers() or [])
        if self._transforms is not None:
            try:
                content = self._transforms(content)
            except UnjudgedError as error:
                raise _stopped(record, error) from None
        source = self.source_of(record.partition()) + b"%d" % record.offset()
        headers = with_source(content.headers, (SOURCE_HEADER, source))
        time = record.timestamp()[1]
        if self._retimed or time == TIME_OF_WRITING:
            headers = [*(each for each in headers if each[0] != TIME_HEADER), (TIME_HEADER, b"%d" % time)]
            time = TIME_OF_WRITING
        return Copy(content.value, record.key(), self._partition(record), max(time, TIME_OF_WRITING), headers)

    def _partition(self, record: Record) -> int:
        if not self._by_key:
            return record.partition()
        return record.partition() % self._target_partitions if record.key() is None else CLIENTS_CHOICE


def with_source(headers: Headers, source: tuple[str, bytes]) -> Headers:
    """Replaces the source header: the copy of a copy names the copy, and not the first original."""
    return [*(each for each in headers if each[0] != SOURCE_HEADER), source]


def _stopped(record: Record, error: UnjudgedError) -> CopyError:
    return CopyError(
        f"{record.topic()}/{record.partition()} offset {record.offset()}: {error}; nothing from there on is copied. "
        "Change the filter or the transforms, or copy what is before and behind it in replays of their own"
    )
