"""The places that audit events go to: standard output, a file, a receiver of syslog."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from meshctl.siem.syslog import Receiver, Sender, Transport, message

ONLY_OWNER: Final = 0o640


class TargetGoneError(RuntimeError):
    """Nobody will take events any more."""


class Target(Protocol):
    """Takes events one by one. OSError from `send` and `flush`: the events since the last flush may not be there."""

    def send(self, event: dict[str, Any]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Lines:
    """Standard output: an event a line. TargetGoneError when its reader has ended."""

    def send(self, event: dict[str, Any]) -> None:
        with _reader():
            sys.stdout.buffer.write(orjson.dumps(event) + b"\n")

    def flush(self) -> None:
        with _reader():
            sys.stdout.buffer.flush()

    def close(self) -> None:
        """The process has the stream."""


@contextlib.contextmanager
def _reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise TargetGoneError("the program that reads the events has ended") from None


class FileTarget:
    """A file that grows: an event a line. A program that rotates it may move it away; the next event makes it anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = self._opened()

    def send(self, event: dict[str, Any]) -> None:
        line = orjson.dumps(event) + b"\n"
        if self._was_moved():
            self.flush()
            self.close()
            self._handle = self._opened()
        while line:
            line = line[os.write(self._handle, line) :]

    def flush(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, ONLY_OWNER)

    def _was_moved(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        mine = os.fstat(self._handle)
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)


class SyslogTarget:
    """A receiver of syslog: an event a message."""

    def __init__(self, receiver: Receiver, authorities: Path | None) -> None:
        """`authorities`: those that sign the receiver's certificate; the system's otherwise."""
        is_tls = receiver.transport is Transport.TLS
        context = ssl.create_default_context(cafile=authorities and str(authorities)) if is_tls else None
        self._sender = Sender(receiver, context)
        self._host = socket.gethostname()

    def send(self, event: dict[str, Any]) -> None:
        text = orjson.dumps(event).decode()
        code = event["metadata"]["event_code"]
        self._sender.send(message(text, event["time"], event["severity_id"], self._host, code))

    def flush(self) -> None:
        """Each message is sent at once."""

    def close(self) -> None:
        self._sender.close()
