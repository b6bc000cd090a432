"""The last users of control on disk, with their verifiers. A gateway starts with these, so clients can log in while
control and all routers are away.

The file is a `mesh.v1.UserTablePage`, for its owner's eyes only: who reads it can guess weak passwords.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from mesh.rpc import users
from mesh.user_tables import PageReader, UnusableUsersError, UserTable
from mesh.whole_files import replace_file
from services.gateway.downstream.last_table import UnusableTableError, locked

log = structlog.get_logger(__name__)

FILE_NAME: Final = "users.pb"


@dataclass(frozen=True, slots=True)
class Kept:
    """The users on disk."""

    table: UserTable
    age_s: float
    """Seconds since the users were written."""


def load(state_dir: Path) -> Kept | None:
    """None if there is no file. Raises UnusableTableError."""
    path = state_dir / FILE_NAME
    try:
        content, written_at = path.read_bytes(), path.stat().st_mtime
    except FileNotFoundError:
        return None
    try:
        table = PageReader().take(users.UserTablePage.FromString(content))
    except (DecodeError, UnusableUsersError) as error:
        reason = str(error) if isinstance(error, UnusableUsersError) else "it is damaged"
        raise UnusableTableError(f"{path}: no users ({reason}); remove it to start without users") from None
    if table is None:
        raise UnusableTableError(f"{path}: not all users; remove it to start without users")
    return Kept(table, max(0.0, time.time() - written_at))


def save_unless_older(state_dir: Path, table: UserTable) -> None:
    """Replaces the file, unless it has a later edition: workers of one gateway share the folder."""
    message = users.UserTablePage(
        edition=table.edition, whole=True, users=table.messages(), decoy_secret=table.users.decoy_secret
    )
    with locked(state_dir):
        if table.edition >= _edition(state_dir / FILE_NAME):
            replace_file(state_dir / FILE_NAME, message.SerializeToString())


def _edition(path: Path) -> int:
    """The edition on disk; -1 for none."""
    try:
        return users.UserTablePage.FromString(path.read_bytes()).edition
    except (FileNotFoundError, DecodeError):
        return -1


class UserKeeper:
    """Keeps users on disk beside the event loop: of the tables that come while it writes, only the last one."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._next: UserTable | None = None
        self._writing: asyncio.Task[None] | None = None

    def keep(self, table: UserTable) -> None:
        self._next = table
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="keep users on disk")

    async def written(self) -> None:
        """Returns when the last users are on disk, or the log has the reason why they are not."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        while self._next is not None:
            table, self._next = self._next, None
            try:
                await asyncio.to_thread(save_unless_older, self._state_dir, table)
            except OSError as error:
                log.error("users could not be kept on disk", state_dir=str(self._state_dir), reason=str(error))
