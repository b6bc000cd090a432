"""A small file that outlives the process: replaced as a whole, checked when it is read.

The first line has the kind of the file and the checksum of the rest, so a half-written or edited file is detected. Such
a file is set aside under another name, with a warning, and counts as missing.
"""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import structlog

from mesh.whole_files import replace_file
from services.sidecar.telemetry import metrics

MAGIC = b"kafka-mesh sidecar state 1 sha256="
BROKEN_SUFFIX = ".broken"
MAX_BYTES = 64 * 1024 * 1024
"""More than any sidecar has; a larger file is none of ours."""
WRITE_SECONDS = 5.0
"""How long a change waits for the disk."""

log = structlog.get_logger(__name__)


class StateFile:
    """Bytes that stand in one file. Its methods block."""

    def __init__(self, path: Path, *, is_lost: Callable[[], bool] = lambda: False) -> None:
        """`is_lost`: whether another process writes the file by now, so that this one must not."""
        self.path = path
        self._is_lost = is_lost

    def load(self) -> bytes | None:
        """The content that was saved last; None if there is none, or if the file is damaged. OSError from the disk."""
        try:
            with self.path.open("rb") as file:
                whole = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        head, _, content = whole.partition(b"\n")
        if head == _head(content):
            return content
        self.set_aside("it is not whole, or not as a sidecar wrote it")
        return None

    def save(self, content: bytes) -> None:
        """Replaces the file: a crash leaves the old one or the new one. OSError from the disk."""
        if self._is_lost():
            raise OSError("it is another process's by now")
        replace_file(self.path, _head(content) + b"\n" + content)

    def set_aside(self, reason: str) -> None:
        """Keeps the file under another name for inspection, without blocking the next one."""
        aside = self.path.with_name(self.path.name + BROKEN_SUFFIX)
        self.path.replace(aside)
        log.warning("state file is set aside", file=str(self.path), now=str(aside), reason=reason)


class StateWriter:
    """Saves beside the event loop. Changes that come while the disk is busy are written together, once."""

    def __init__(self, file: StateFile, content: Callable[[], bytes]) -> None:
        """`content` returns, on the loop, the content for the file."""
        self._file = file
        self._content = content
        self._next: asyncio.Future[bool] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    def soon(self) -> None:
        """Saves the present state, without a wait."""
        self._round()

    async def written(self) -> bool:
        """Returns when the present state is on disk; False when the disk did not take it in time, which is logged."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                return await asyncio.shield(self._round())
        except TimeoutError:
            log.error("the state file is not written in time", file=str(self._file.path), seconds=WRITE_SECONDS)
            return False

    def close(self) -> None:
        """Writes nothing more from now on: later content must not be found again."""
        self._is_closed = True

    def _round(self) -> asyncio.Future[bool]:
        """The next write to begin; all requests before its begin share it."""
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.create_future()
            if self._writing is None or self._writing.done():
                self._writing = loop.create_task(self._write(), name="write state")
        return self._next

    async def _write(self) -> None:
        while self._next is not None:
            waiting, self._next = self._next, None
            waiting.set_result(not self._is_closed and await self._save(self._content()))

    async def _save(self, content: bytes) -> bool:
        try:
            await asyncio.to_thread(self._file.save, content)
        except OSError as error:
            metrics.state_writes.labels("failed").inc()
            log.error("the state could not be kept on disk", file=str(self._file.path), reason=str(error))
            return False
        metrics.state_writes.labels("ok").inc()
        return True


def _head(content: bytes) -> bytes:
    return MAGIC + hashlib.sha256(content).hexdigest().encode()
