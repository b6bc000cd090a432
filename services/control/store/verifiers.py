"""Verifiers of users, apart from the log: the log is kept for ever, and many may read it.

The row of a user changes in the transaction of the event that sets, deletes or brings back the user. A deleted user's
row stays for `DELETED_KEPT`, so that a decision can bring the user back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from mesh.rpc import events, users
from services.control.store import schema
from services.control.store.cleaning import delete_older
from services.control.store.database import Database
from services.control.store.statements import Statement, amend_row, put_row

DELETED_KEPT: Final = timedelta(days=30)

_HAS = b"select exists (select from user_verifiers where name = %s)"


class UserVerifiers:
    """The table of verifiers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def has(self, name: str) -> bool:
        """Whether verifiers of the user are kept, also of a deleted user."""
        [[(found,)]] = await self._database.carry_out([Statement(_HAS, (name,))])
        return bool(found)

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
