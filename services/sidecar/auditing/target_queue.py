"""One target of the audit trail: its queue, its thread, and what happens when it does not keep up.

1. The caller gives a record its text. A record that crosses to the thread as it is costs thrice as much: both
   processors then fight over its parts.
2. After the first record, the thread waits `LINGER_SECONDS`, so that it writes many records at once. Then it takes all
   queued records and writes them in slices. It gives the interpreter away between two slices: the audit of a batch must
   not hold up the event loop.
3. If a target cannot take a record now, the thread tries again. With DROP it tries for `retry_seconds`, then the record
   is lost and counted; with BLOCK it tries until it succeeds. Meanwhile the queue fills up.
4. A full queue drops new records (DROP), or makes the work wait (BLOCK). Work checks for room before it begins, so
   records of work in progress still find a place: only these records exceed the bound.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import structlog

from services.sidecar.auditing.events import AuditRecord
from services.sidecar.auditing.text import Entry
from services.sidecar.telemetry import metrics

LINGER_SECONDS = 0.02
SLICE_RECORDS = 100
"""Written at once: about 0.1 ms."""
ENTRY_BYTES = 400
"""The memory of a waiting record besides its text: its key, and Python's objects."""
FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 1.0
"""Between two attempts to write: doubled, up to this."""

log = structlog.get_logger(__name__)


class Overflow(Enum):
    """The side that gives way when audit does not keep up."""

    DROP = "drop"
    """Audit: records are lost, and counted."""
    BLOCK = "block"
    """The work: it waits."""


class NotWrittenError(Exception):
    """The reason why the target cannot take more now. The target wrote the first `written` of the given records."""

    def __init__(self, why: str, written: int = 0) -> None:
        super().__init__(why)
        self.written = written


class Target(Protocol):
    """A target of audit records. One thread uses it."""

    name: str

    def write(self, entries: Sequence[Entry]) -> None:
        """NotWrittenError if the target cannot take all records. The call is bounded in time."""

    def idle(self) -> None:
        """Called now and then."""

    def close(self, timeout: float) -> None:
        """Waits until the taken records are written, `timeout` seconds at most."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds, in the unit that each name ends in."""

    max_records: int
    max_bytes: int
    overflow: Overflow
    retry_seconds: float


class TargetQueue:
    """Feeds one target."""

    def __init__(self, target: Target, entry_of: Callable[[AuditRecord], Entry], limits: QueueLimits) -> None:
        """`entry_of` gives a record the form that the target writes."""
        self._target = target
        self._entry_of = entry_of
        self._limits = limits
        self._blocks = limits.overflow is Overflow.BLOCK
        self._lock = threading.Lock()
        self._queue: deque[tuple[Sequence[Entry], int]] = deque()
        self._records = 0
        self._bytes = 0
        """The bytes of the records that wait or are being written."""
        self._work = threading.Event()
        self._ending = threading.Event()
        self._ended = False
        self._give_up_at = float("inf")
        self._why = ""
        """The target's reason when it could not write."""
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._thread = threading.Thread(target=self._run, name=f"audit-{target.name}", daemon=True)
        self._lost = metrics.lost_audits.labels(target.name)
        self._written = metrics.written_audits.labels(target.name)
        metrics.queued_audits.labels(target.name).set_function(lambda: self._records)
        metrics.queued_audit_bytes.labels(target.name).set_function(lambda: self._bytes)

    def start(self) -> None:
        self._thread.start()

    def add(self, records: Sequence[AuditRecord]) -> bool:
        """Takes these records, or drops them (False). Never waits."""
        if not (self._takes and self._put(list(map(self._entry_of, records)))):
            self._lose(len(records))
            return False
        if not self._work.is_set():
            self._work.set()
        return True

    def _put(self, entries: Sequence[Entry]) -> bool:
        size = ENTRY_BYTES * len(entries) + sum([len(text) for _, text in entries])
        with self._lock:
            if not self._takes:  # another thread filled the queue, or ended it
                return False
            self._queue.append((entries, size))
            self._records += len(entries)
            self._bytes += size
        return True

    @property
    def is_full(self) -> bool:
        """Whether the work has to wait."""
        return self._blocks and not self._has_room

    async def room(self) -> None:
        """Waits until there is some."""
        while self.is_full:
            freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with self._lock:
                if self._has_room:
                    return
                self._waiting.append((asyncio.get_running_loop(), freed))
            metrics.audit_waits.inc()
            await freed

    @property
    def fault(self) -> str | None:
        """Why the work has to wait."""
        if not self.is_full:
            return None
        bound = f"{self._limits.max_records} records or {self._limits.max_bytes} bytes"
        return f"audit ({self._target.name}) is full ({bound}), so all else waits: {self._why or 'it is too slow'}"

    def stop(self, timeout: float) -> None:
        """Blocks until all is written, `timeout` seconds at most."""
        self._give_up_at = time.monotonic() + timeout
        self._ending.set()
        self._work.set()
        self._thread.join(timeout + MAX_PAUSE_SECONDS)

    @property
    def _takes(self) -> bool:
        return not self._ended and (self._has_room or self._blocks)

    @property
    def _has_room(self) -> bool:
        return self._records < self._limits.max_records and self._bytes < self._limits.max_bytes

    def _run(self) -> None:
        while not self._ending.is_set():
            if not self._work.wait(MAX_PAUSE_SECONDS):
                self._target.idle()
                continue
            self._ending.wait(LINGER_SECONDS)
            self._work.clear()
            self._write_queue()
        with self._lock:
            self._ended = True
        self._write_queue()
        self._target.close(max(self._give_up_at - time.monotonic(), 0))

    def _write_queue(self) -> None:
        with self._lock:
            taken, self._queue = self._queue, deque()
        for entries, size in taken:
            for start in range(0, len(entries), SLICE_RECORDS):
                self._write(entries[start : start + SLICE_RECORDS])
                time.sleep(0)
            self._free(len(entries), size)

    def _write(self, entries: Sequence[Entry]) -> None:
        """Until they are written, or lost."""
        give_up_at = float("inf") if self._blocks else time.monotonic() + self._limits.retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                self._target.write(entries)
            except NotWrittenError as failed:
                self._written.inc(failed.written)
                entries = entries[failed.written :]
                self._complain(str(failed))
            else:
                self._written.inc(len(entries))
                self._why = ""
                return
            if time.monotonic() >= min(give_up_at, self._give_up_at):
                self._lose(len(entries))
                return
            if self._ending.wait(pause):
                time.sleep(FIRST_PAUSE_SECONDS)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _free(self, records: int, size: int) -> None:
        with self._lock:
            self._records -= records
            self._bytes -= size
            if not self._waiting or not self._has_room:
                return
            waiting, self._waiting = self._waiting, []
        for loop, freed in waiting:
            loop.call_soon_threadsafe(_wake, freed)

    def _lose(self, records: int) -> None:
        self._lost.inc(records)

    def _complain(self, why: str) -> None:
        """Once for each thing that is the matter."""
        if why != self._why:
            log.warning("audit records cannot be written", target=self._target.name, why=why)
        self._why = why


def _wake(freed: "asyncio.Future[None]") -> None:
    if not freed.done():
        freed.set_result(None)
