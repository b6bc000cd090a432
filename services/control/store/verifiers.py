"""Verifiers of users, apart from the log: the log is kept for ever, and many may read it.

The row of a user changes in the transaction of the event that sets, deletes or brings back the user. A deleted user's
row stays for `DELETED_KEPT`, so that a decision can bring the user back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from mesh.rpc import events, users
from services.control.store import schema
from services.control.store.cleaning import delete_older
from services.control.store.database import Database
from services.control.store.statements import Statement, amend_row, delete_rows, put_row

DELETED_KEPT: Final = timedelta(days=30)

_ALL = b"select name, revision, body from user_verifiers where time is null"
_CHANGED = (
    b"select name, revision, case when time is null then body end from user_verifiers where revision > %s "
    b"order by time is null"
)
_SECRET = b"select secret from user_decoys"
_HAS = b"select exists (select from user_verifiers where name = %s)"


@dataclass(frozen=True, slots=True)
class Found:
    """Users with their verifiers, as PostgreSQL has them at one moment."""

    users: list[users.UserVerifiers] = field(repr=False)
    edition: int
    """The last decision about one of them; 0 for none."""


class UserVerifiers:
    """The table of verifiers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def has(self, name: str) -> bool:
        """Whether verifiers of the user are kept, also of a deleted user."""
        [[(found,)]] = await self._database.carry_out([Statement(_HAS, (name,))])
        return bool(found)

    async def all(self) -> Found:
        """The users who can log in."""
        return await self._read(Statement(_ALL))

    async def changed_after(self, edition: int) -> Found:
        """The users whom later decisions have changed, first those who are deleted: these have no verifiers."""
        return await self._read(Statement(_CHANGED, (edition,)))

    async def decoy_secret(self) -> bytes:
        """The secret from which gateways make the verifiers that unknown users appear to have."""
        [[(secret,)]] = await self._database.carry_out([Statement(_SECRET)])
        return bytes(secret)

    async def _read(self, query: Statement) -> Found:
        [rows] = await self._database.carry_out([query])
        found = [
            users.UserVerifiers(name=name, verifiers=users.ScramVerifiers.FromString(body or b"").verifiers)
            for name, _, body in rows
        ]
        return Found(found, max((revision for _, revision, _ in rows), default=0))

    async def forget_deleted(self) -> None:
        """Deletes the verifiers of users who were deleted long ago."""
        await delete_older(self._database, schema.user_verifiers, datetime.now(UTC) - DELETED_KEPT)


def kept(event: events.Event, verifiers: users.ScramVerifiers) -> Statement:
    """Keeps the verifiers of a user whom the event sets, instead of those before."""
    body = verifiers.SerializeToString(deterministic=True)
    row = {"name": event.user_set.name, "revision": event.position, "body": body, "time": None}
    return put_row(schema.user_verifiers, row)


def of_deleted(event: events.Event) -> Statement:
    """Marks the verifiers of a user whom the event deletes."""
    values = {"revision": event.position, "time": event.time.ToDatetime(UTC)}
    return amend_row(schema.user_verifiers, event.user_deleted.name, values)


def of_restored(event: events.Event) -> Statement:
    """Makes the verifiers of a user count again."""
    return amend_row(schema.user_verifiers, event.user_restored.name, {"revision": event.position, "time": None})


def of_lost(event: events.Event) -> Iterator[Statement]:
    """Forgets the verifiers of a user whom the event changes, if only the event is known: a password that was replaced
    must not come back.
    """
    match event.WhichOneof("payload"):
        case "user_set":
            yield from delete_rows(schema.user_verifiers, [event.user_set.name])
        case "user_deleted":
            yield from delete_rows(schema.user_verifiers, [event.user_deleted.name])
        case "user_restored":
            yield from delete_rows(schema.user_verifiers, [event.user_restored.name])
