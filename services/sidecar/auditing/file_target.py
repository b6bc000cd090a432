"""Audit records in a log file, a line of JSON each, nulls shown; kept within bounds by rotation.

The file belongs to one sidecar. A full file becomes `<name>.1`, `<name>.1` becomes `<name>.2`, and the oldest file is
deleted. If another process moves or deletes the file, the sidecar makes a new file.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from services.sidecar.auditing.target_queue import NotWrittenError
from services.sidecar.auditing.text import Entry

MODE = 0o640
"""The file holds keys of records, so others may not read it."""


class FileTarget:
    """Writes to one file. Used by one thread."""

    name = "logfile"

    def __init__(self, path: Path, *, max_bytes: int, archives: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._archives = archives
        self._file: int | None = None
        self._size = 0

    def write(self, entries: Sequence[Entry]) -> None:
        lines = b"".join([line for _, line in entries])
        try:
            self._append(lines)
        except OSError as error:
            self._let_go()
            raise NotWrittenError(f"{self._path}: {error.strerror or error}") from None

    def idle(self) -> None:
        """Nothing to do."""

    def close(self, timeout: float) -> None:
        self._let_go()

    def _append(self, lines: bytes) -> None:
        """Appends all lines or, as far as the disk permits, none."""
        file = self._opened()
        if self._size and self._size + len(lines) > self._max_bytes:
            self._rotate()
            file = self._opened()
        done = 0
        try:
            while done < len(lines):
                done += os.write(file, lines[done:])
        except OSError:
            os.ftruncate(file, self._size)
            raise
        self._size += done

    def _opened(self) -> int:
        if self._file is not None and self._is_ours(self._file):
            return self._file
        self._let_go()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        self._size = os.fstat(self._file).st_size
        return self._file

    def _is_ours(self, file: int) -> bool:
        """Whether the file's name still leads to the open file."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(file))

    def _rotate(self) -> None:
        self._let_go()
        for number in range(self._archives, 0, -1):
            older = self._archive(number - 1) if number > 1 else self._path
            if older.exists():
                older.replace(self._archive(number))
        if not self._archives:
            self._path.unlink()

    def _archive(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _let_go(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)
