"""The last routing table on disk. A gateway starts with this table if no router can send the present one, and if
control moves no topic without the gateway (`awaited.py`).

The file `routing-table.pb` is a `mesh.v1.RoutingTable` of protobuf: the gateway has the bytes of each rule anyway, so a
change writes the file as a whole without encoding the rules again. A crash leaves the old table or the new one.
Gateways of earlier releases wrote protobuf JSON, and an operator without routers writes `routing-table.json` by hand:
the later of the two files counts. A gateway that has written a table removes the JSON file.

Before a gateway says HELD, it keeps the table to come in a file of its own (protobuf). A gateway that starts again
before it knows how the move has ended finds this file, and writes the moving topics nowhere. An operator may remove the
file when no router can come back: the gateway then starts under the table before the move.
"""

import asyncio
import fcntl
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

import structlog
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from mesh.routing import InvalidRuleError, RoutingTable
from mesh.routing.table_bytes import REVISION_BYTES, TableBytes, revision_of
from mesh.routing.table_reader import read_at_once
from mesh.rpc import routing
from mesh.whole_files import remove_files, replace_file
from services.gateway.downstream.awaited import Awaited

log = structlog.get_logger(__name__)

FILE_NAME = "routing-table.pb"
JSON_NAME = "routing-table.json"
LOCK_NAME = ".routing-table.lock"
HELD_NAME = "held-table-{revision}.pb"
_HELD = re.compile(r"held-table-(\d+)\.pb")
_REVISION = re.compile(rb'"revision":\s*"?(\d+)')


class UnusableTableError(Exception):
    """The file is there but can't be understood."""


def load(state_dir: Path) -> RoutingTable | None:
    """The table, or None when there is no file."""
    found = [table for table in (_load(state_dir / JSON_NAME), _load(state_dir / FILE_NAME)) if table is not None]
    return max(found, key=attrgetter("revision"), default=None)


def _load(path: Path) -> RoutingTable | None:
    try:
        return read_at_once(_parsed(path))
    except FileNotFoundError:
        return None
    except (json_format.ParseError, DecodeError, InvalidRuleError, UnicodeDecodeError) as error:
        raise UnusableTableError(f"{path}: not a routing table ({error}); remove it to start without one") from error


def _parsed(path: Path) -> routing.RoutingTable:
    if path.name == JSON_NAME:
        return json_format.Parse(path.read_text(encoding="utf-8"), routing.RoutingTable())
    return routing.RoutingTable.FromString(path.read_bytes())


def load_held(state_dir: Path) -> RoutingTable | None:
    """The table of the last move whose end was not known here; None when there is no such file."""
    while found := _held_files(state_dir):
        path = found[max(found)]
        try:
            return read_at_once(routing.RoutingTable.FromString(path.read_bytes()))
        except FileNotFoundError:
            continue  # another worker of this gateway has heard how the move ended
        except (DecodeError, InvalidRuleError) as error:
            raise UnusableTableError(
                f"{path}: not a routing table ({error}); remove it to start under the table before the move"
            ) from error
    return None


def forget_held(state_dir: Path, revision: int) -> None:
    """The move of this revision has ended, and so have those before it."""
    for each, path in _held_files(state_dir).items():
        if each <= revision:
            path.unlink(missing_ok=True)


def _held_files(state_dir: Path) -> dict[int, Path]:
    return {int(match[1]): path for path in state_dir.glob("held-table-*.pb") if (match := _HELD.fullmatch(path.name))}


def save_held(state_dir: Path, revision: int, encoded: Sequence[bytes]) -> None:
    """Keep the table of a move that is about to be decided. Workers of one gateway may write the same file."""
    replace_file(state_dir / HELD_NAME.format(revision=revision), *encoded)


def save(state_dir: Path, table: RoutingTable) -> None:
    """Replace the file as a whole: a crash leaves the old table or the new one."""
    _save(state_dir, TableBytes().pieces(table))


def _save(state_dir: Path, encoded: Sequence[bytes]) -> None:
    replace_file(state_dir / FILE_NAME, *encoded)
    remove_files([state_dir / JSON_NAME])


def save_unless_older(state_dir: Path, revision: int, encoded: Sequence[bytes]) -> None:
    """As `save`, unless there is a younger one: several workers of a gateway share the folder, and one may be late."""
    with locked(state_dir):
        if revision >= max(_revision(state_dir / FILE_NAME), _revision(state_dir / JSON_NAME)):
            _save(state_dir, encoded)


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """The others wait for milliseconds; the lock of one that has died is free."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / LOCK_NAME).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _revision(path: Path) -> int:
    """The revision of the table on disk; -1 for none. Parsing the table would take long with thousands of rules."""
    try:
        with path.open("rb") as file:
            if path.name == JSON_NAME:
                found = _REVISION.search(file.read())
                return -1 if found is None else int(found[1])
            return revision_of(file.read(REVISION_BYTES))
    except FileNotFoundError:
        return -1


class TableKeeper:
    """Keeps each table on disk beside the event loop: with thousands of rules the file takes longer to write than a
    client should wait. It writes one table at a time; of the tables that come meanwhile, only the last one.
    """

    def __init__(
        self, state_dir: Path, awaited: Awaited, encoded: Callable[[RoutingTable], Awaitable[Sequence[bytes]]]
    ) -> None:
        self._state_dir = state_dir
        self._encoded = encoded
        self._awaited = awaited
        self._is_kept = False
        """Whether the disk has the last table of a router, and says that control waits for this gateway."""
        self._leaves = False
        self._was_awaited = False
        self._next: tuple[RoutingTable, asyncio.Event] | None = None
        """The table to be written next, and the event for those who wait for it."""
        self._ended = 0
        self._writing: asyncio.Task[None] | None = None

    def keep(self, table: RoutingTable) -> asyncio.Event:
        """Returns an event: this table or a later one is on disk, or the log has the reason why it is not."""
        written = asyncio.Event() if self._next is None else self._next[1]
        self._next = (table, written)
        self._write_on()
        return written

    async def hold(self, table: RoutingTable) -> None:
        """Returns when the table to come is on disk; OSError when it can't be kept there."""
        await asyncio.to_thread(save_held, self._state_dir, table.revision, await self._encoded(table))

    def move_ended(self, revision: int) -> None:
        """It is known how the move of this revision has ended: its file goes, after the table in force is kept."""
        self._ended = max(self._ended, revision)
        self._write_on()

    async def leave(self) -> None:
        """Returns when the disk says that topics may move without this gateway; OSError when the disk can't say it."""
        self._leaves = True
        if self._writing is not None:
            await asyncio.wait({self._writing})
        self._was_awaited = bool(self._awaited)
        await asyncio.to_thread(self._awaited.remove)

    async def stay(self) -> None:
        """Takes `leave` back: no router can have heard a goodbye."""
        if self._was_awaited:
            await asyncio.to_thread(self._awaited.write)

    def _write_on(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="keep the table on disk")

    async def _write(self) -> None:
        while self._next is not None or self._ended:
            following, self._next = self._next, None
            ended, self._ended = self._ended, 0
            try:
                if following is not None:
                    table = following[0]
                    await asyncio.to_thread(self._save, table.revision, await self._encoded(table))
                if ended:
                    await asyncio.to_thread(forget_held, self._state_dir, ended)
            except OSError as error:
                log.error("the table could not be kept on disk", state_dir=str(self._state_dir), reason=str(error))
            finally:
                if following is not None:
                    following[1].set()

    def _save(self, revision: int, encoded: Sequence[bytes]) -> None:
        """If the table can't be kept, the table before stays on disk, and must not be served after a crash."""
        try:
            save_unless_older(self._state_dir, revision, encoded)
            if not (self._is_kept or self._leaves):
                self._awaited.write()
                self._is_kept = True
        except OSError:
            self._is_kept = False
            self._awaited.remove()
            raise
