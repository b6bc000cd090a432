"""One partition of a store in one SQLite file: entries, and the changelog offset that they have reached (checkpoint).

Entries and checkpoint change in one SQLite transaction, after Kafka's transaction. So a process that dies between the
two leaves a store that is behind Kafka, never ahead; the changelog brings that store up to date. Nothing is lost with
the file: a missing or unreadable file is made anew from the changelog.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from services.sidecar.streams.records import StoreSpec, TopologyError
from services.sidecar.streams.state import EntryKey

CACHE_KIB = 8 * 1024
"""The memory for pages of each store."""
TOMBSTONES_SECONDS = 24 * 3600.0
"""The time for which a changelog keeps removals of entries (delete.retention.ms). An older store may miss removals."""
READ_SECONDS = 2.0
"""The longest wait of a read for a lock of the file."""
_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    "window" INTEGER NOT NULL, "key" BLOB NOT NULL, "value" BLOB NOT NULL, PRIMARY KEY ("window", "key")
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, fact NOT NULL) WITHOUT ROWID;
"""

log = structlog.get_logger(__name__)


class Store:
    """An open store. One thread may use it at a time; other threads may read the file by `find` and `windows_of`."""

    def __init__(self, path: Path, spec: StoreSpec, *, max_bytes: int) -> None:
        """Opens or makes the file. TopologyError when the file has entries of another shape."""
        self.path = path
        self._spec = spec
        self._max_bytes = max_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._database = self._opened()
        except sqlite3.DatabaseError as error:
            log.warning(
                "a store is made anew from its changelog: its file cannot be read", file=str(path), error=str(error)
            )
            _remove(path)
            self._database = self._opened()
        self._check_shape()

    @property
    def checkpoint(self) -> int | None:
        """The first changelog offset that the store does not have; None for an empty store."""
        found = self._fact("checkpoint")
        return None if found is None else int(found)

    @property
    def is_stale(self) -> bool:
        """Whether the store is so old that it may have missed removals of entries."""
        return time.time() - float(self._fact("written_at") or 0) > TOMBSTONES_SECONDS

    @property
    def size(self) -> int:
        """The bytes of the file, without the journal."""
        with contextlib.suppress(OSError):
            return self.path.stat().st_size
        return 0

    def get(self, key: EntryKey) -> bytes | None:
        row = self._database.execute('SELECT "value" FROM entries WHERE "window" = ? AND "key" = ?', key).fetchone()
        return None if row is None else row[0]

    def up_to(self, window: int) -> Iterator[tuple[EntryKey, bytes]]:
        rows = self._database.execute(
            'SELECT "window", "key", "value" FROM entries WHERE "window" BETWEEN 0 AND ? ORDER BY "window", "key"',
            (window,),
        )
        return ((EntryKey(window, key), value) for window, key, value in rows)

    def apply(self, changes: Mapping[EntryKey, bytes | None], checkpoint: int) -> None:
        """Applies changes and sets the checkpoint: both or neither. sqlite3.Error when the disk fails."""
        put = [(*key, value) for key, value in changes.items() if value is not None]
        removed = [key for key, value in changes.items() if value is None]
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", put)
            self._database.executemany('DELETE FROM entries WHERE "window" = ? AND "key" = ?', removed)
            self._note(checkpoint=checkpoint, written_at=time.time())
            self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise

    def clear(self) -> None:
        """Removes all entries and the checkpoint."""
        self._database.executescript("BEGIN; DELETE FROM entries; DELETE FROM facts WHERE name = 'checkpoint'; COMMIT;")

    def close(self) -> None:
        self._database.close()

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=READ_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            page = database.execute("PRAGMA page_size").fetchone()[0]
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")  # the changelog has the changes that a power cut takes
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            database.execute(f"PRAGMA max_page_count = {max(self._max_bytes // page, 16)}")
            database.executescript(_TABLES)
        except BaseException:
            database.close()
            raise
        return database

    def _check_shape(self) -> None:
        shape = self._fact("shape")
        if shape is None:
            self._note(shape=self._spec.shape)
        elif shape != self._spec.shape:
            self.close()
            raise TopologyError(
                f"Store {self._spec.name!r} ({self.path}) has {shape}, and the topology wants {self._spec.shape}: "
                "give that store another name"
            )

    def _fact(self, name: str) -> str | int | float | None:
        row = self._database.execute("SELECT fact FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _note(self, **facts: str | float) -> None:
        self._database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def find(path: Path, key: EntryKey) -> bytes | None:
    """An entry as of the last committed round, even while another thread uses the store. None also without a file."""
    with _reading(path) as database:
        if database is None:
            return None
        row = database.execute('SELECT "value" FROM entries WHERE "window" = ? AND "key" = ?', key).fetchone()
        return None if row is None else row[0]


def windows_of(path: Path, key: bytes, first: int, last: int, limit: int) -> list[tuple[int, bytes]]:
    """Starts and values of a key's windows that start within these bounds."""
    with _reading(path) as database:
        if database is None:
            return []
        return database.execute(
            'SELECT "window", "value" FROM entries WHERE "window" BETWEEN ? AND ? AND "key" = ? '
            'ORDER BY "window" LIMIT ?',
            (max(first, 0), last, key, limit),
        ).fetchall()


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=READ_SECONDS)
    except sqlite3.OperationalError:
        yield None
        return
    try:
        yield database
    finally:
        database.close()


def _remove(path: Path) -> None:
    for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        one.unlink(missing_ok=True)
