"""The times of commits: a consumer commits after so many records or so long, whichever comes first.

One commit is under way at a time; offsets that are settled meanwhile go with the next commit. An offset that Kafka
refused, as in a rebalance, goes again with the next commit. If the partition has gone, the offset is dropped, and the
partition's new owner gets the records again.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from services.sidecar.records import Commit, Partition


class Commits:
    """The commits of one consumer; all methods belong to the event loop."""

    def __init__(self, send: Callable[[Mapping[Partition, int]], None], interval_seconds: float, records: int) -> None:
        """`send` hands a commit over; the caller must call `ended` when that commit has ended."""
        self._send = send
        self._interval = interval_seconds
        self._records = records
        self._due: dict[Partition, int] = {}
        self._settled = 0
        self._is_out = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def due(self) -> Mapping[Partition, int]:
        """The offsets that Kafka has not confirmed."""
        return self._due

    def settled(self, partition: Partition, next_offset: int, records: int) -> None:
        """Notes that all records before this offset are settled; `records` is the number of newly settled records."""
        self._due[partition] = next_offset
        self._settled += records
        if self._settled >= self._records:
            self._flush()
        else:
            self._later()

    def ended(self, commits: Iterable[Commit]) -> None:
        """Notes the end of a commit; Kafka has taken these of its offsets."""
        self._is_out = False
        for commit in commits:
            if self._due.get(commit.partition, commit.offset + 1) <= commit.offset:
                del self._due[commit.partition]
        if self._due:
            self._later()

    def forget(self, partitions: Collection[Partition]) -> None:
        """Forgets partitions that another member has now."""
        for partition in partitions:
            self._due.pop(partition, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._flush)

    def _flush(self) -> None:
        self.close()
        if self._is_out or not self._due:
            return  # the end of the present commit starts the next commit
        self._is_out = True
        self._settled = 0
        self._send(dict(self._due))
