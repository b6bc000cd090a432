"""`meshctl apply --watch`: the mesh follows a file, such as a mounted one that a Git repository fills.

The file is applied as it is found, again whenever its text changes, and again after some time, because somebody may
have changed the mesh by hand. A failure is reported, and the file is tried again: the file may have a mistake, and
control may be away or frozen. Each try has a connection of its own, so a renewed certificate or token counts.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click

from meshctl.failures import ExitCode, MeshctlError

LOOK_SECONDS = 2.0
"""Between two reads of the file."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds from a failure to the next try; each pause is twice the one before."""


@dataclass(slots=True)
class Watch:
    """One file that is followed until `ended` is set."""

    path: Path
    apply: Callable[[str], None]
    """Applies this text. Raises ClickException, as commands do."""
    failed: Callable[[click.ClickException], None]
    """Tells a failure."""
    resync_seconds: float
    clock: Callable[[], float] = time.monotonic
    ended: threading.Event = field(default_factory=threading.Event)
    _tried: str | None = None
    _due: float = 0.0
    _pause: float = FIRST_PAUSE

    def run(self) -> None:
        while not self.ended.is_set():
            self.look()
            self.ended.wait(LOOK_SECONDS)

    def look(self) -> None:
        """Applies the file if its text is another one, or if it is time."""
        try:
            text = self._text()
            if text == self._tried and self.clock() < self._due:
                return
            if text != self._tried:
                self._pause = FIRST_PAUSE
            self._tried = text
            self.apply(text)
        except click.ClickException as error:
            if self._tried is None and self.clock() < self._due:  # the file is still not there
                return
            self.failed(error)
            self._due = self.clock() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return
        self._due = self.clock() + self.resync_seconds
        self._pause = FIRST_PAUSE

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._tried = None
            reason = error.strerror if isinstance(error, OSError) else error.reason
            raise MeshctlError(f"{self.path} can't be read: {reason}", ExitCode.BAD_REQUEST) from error


@contextmanager
def ended_by_signals(ended: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the watch after the try that is under way."""
    before = {each: signal.signal(each, lambda *_: ended.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def say(text: str) -> None:
    """A line with the time, on the error output: the output has plans alone."""
    click.echo(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}", err=True)
