"""The last events of the log in memory, for those who list and follow it. Bounded in number and in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice

from prometheus_client import Gauge

from mesh.rpc import events
from services.control.store.log import Entry

MOST_EVENTS = 10_000
MOST_BYTES = 32 << 20
"""Bytes of the events as they stand in the log; in memory they take about three times as much."""

bytes_gauge = Gauge(
    "kafka_mesh_control_recent_events_bytes", f"Bytes of the last events in memory, at most {MOST_BYTES}."
)


class RecentEvents:
    """The last events, without gaps, the newest last. The newest event is kept however large it is."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._versions: dict[str, int] = {}

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self._bytes += len(entry.body)
            self._versions[entry.event.stream] = entry.event.stream_version
            while len(self._entries) > MOST_EVENTS or (self._bytes > MOST_BYTES and len(self._entries) > 1):
                self._forget_oldest()
        bytes_gauge.set(self._bytes)

    def version(self, stream: str) -> int | None:
        """Version of the last event of a stream; None when no event of the stream is in memory."""
        return self._versions.get(stream)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[events.Event]:
        return (entry.event for entry in self._entries)

    def __reversed__(self) -> Iterator[events.Event]:
        return (entry.event for entry in reversed(self._entries))

    @property
    def first(self) -> int | None:
        """Position of the oldest event."""
        return self._entries[0].event.position if self._entries else None

    @property
    def time(self) -> datetime | None:
        """Time of the newest event."""
        return self._entries[-1].event.time.ToDatetime(UTC) if self._entries else None

    def after(self, position: int, limit: int) -> list[Entry] | None:
        """The next events, oldest first; None when the event after `position` is not in memory."""
        if self.first is None or position + 1 < self.first:
            return None
        start = position + 1 - self.first
        return list(islice(self._entries, start, start + limit))

    def _forget_oldest(self) -> None:
        event, body = self._entries.popleft()
        self._bytes -= len(body)
        if self._versions.get(event.stream) == event.stream_version:
            del self._versions[event.stream]
