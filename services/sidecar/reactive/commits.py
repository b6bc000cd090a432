"""When the group is told how far a consumer is: after so many records or so long, whichever is first.

One commit is under way at a time; what is settled meanwhile goes with the next. One that Kafka refused, as it does in a
rebalance, goes again with the next one, unless its partition has gone: then that is the end of it, and whoever has the
partition now gets the records again.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from services.sidecar.consuming.records import Commit, Partition


class Commits:
    """Of one consumer; belongs to the event loop."""

    def __init__(self, send: Callable[[Mapping[Partition, int]], None], interval_seconds: float, records: int) -> None:
        """`send` hands a commit over; `ended` has to hear how it ended."""
        self._send = send
        self._interval = interval_seconds
        self._records = records
        self._due: dict[Partition, int] = {}
        self._settled = 0
        self._is_out = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def due(self) -> Mapping[Partition, int]:
        """What Kafka has not confirmed."""
        return self._due

    def settled(self, partition: Partition, next_offset: int, records: int) -> None:
        """Nothing before this offset is open any more; so many records were settled for it."""
        self._due[partition] = next_offset
        self._settled += records
        if self._settled >= self._records:
            self._flush()
        else:
            self._later()

    def ended(self, commits: Iterable[Commit]) -> None:
        """A commit has ended; these of its offsets are Kafka's."""
        self._is_out = False
        for commit in commits:
            if self._due.get(commit.partition, commit.offset + 1) <= commit.offset:
                del self._due[commit.partition]
        if self._due:
            self._later()

    def forget(self, partitions: Collection[Partition]) -> None:
        """They are another member's."""
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
            return  # its end brings the next one
        self._is_out = True
        self._settled = 0
        self._send(dict(self._due))
