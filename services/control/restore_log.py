"""`kafka-mesh restore-log`: gives control's database the events that mesh.events has and the database lacks.

For a database that was lost, or that a backup brought back as it was some time ago. Without this command, control
takes the topic for another mesh's log, and publishes nothing.

1. The command holds the lock of the leading control all the time, so that no control decides meanwhile.
2. Events that the database has must be those of the topic, byte by byte. Each further event must continue the chain.
3. With a certificate, the command restores only what control has signed.
4. Events, projections and the end of the log change in one transaction for each group, as they do when control
   decides. A command that was cut off goes on where it stopped.
5. Control publishes nothing again: the position of the outbox is the end of the topic.
Only the log comes back. Audit events, reports of members and traffic are in no event. Verifiers of users are in none
either: those that a backup has of a user whom a later event sets, deletes or brings back are forgotten.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from mesh.event_log import CONTROL, NewerFormatError, Signatures, UnsignedError
from mesh.event_log.pieces import Assembler, DamagedPieceError
from mesh.member_keys import MemberKeys
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.control.domain.view import ViewFolding
from services.control.settings import ControlSettings
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.followed_log import FollowedLog
from services.control.store.leader import locked
from services.control.store.log import Entry, EventLog, Growth, LogMovedError, OutboxPosition, statements_of
from services.control.store.statements import Statement
from services.control.store.verifiers import of_lost
from services.control.upstream.published_records import PublishedRecords, UnreadError, published_records

GROUP: Final = 200
"""Events in one transaction: a transaction of the store has 8 s."""
EXIT_FAILED = 1

log = structlog.get_logger(__name__)


class RestoreSettings(ControlSettings, service="control"):
    """Appends to control's database the events of mesh.events that it lacks. Run `kafka-mesh migrate` before, and stop
    every control. Takes control's settings.
    """


class RestoreError(RuntimeError):
    """The log can't be restored, and why."""


async def restore(settings: RestoreSettings) -> tuple[int, int]:
    """The number of events that the database had, and that it has now."""
    database = Database(settings.database_url.get_secret_value())
    try:
        connection = await database.dedicated()
        try:
            if not await locked(connection):
                raise RestoreError("a control leads on this database: stop every control first")
            topic = published_records(settings, "kafka-mesh-restore-log")
            keys = None if settings.rpc_tls is None else MemberKeys(settings.rpc_tls)
            signed = Signed(None if keys is None else keys.signatures(CONTROL), settings.vouched_for)
            return await _append_missing(database, topic, signed)
        finally:
            await connection.close()
    finally:
        await database.close()


@dataclass(frozen=True, slots=True)
class Signed:
    """The check of signatures: from the first signature on, each event has one, or an operator vouches for it."""

    signatures: Signatures | None
    vouched_for: int

    def check(self, entry: Entry) -> None:
        """RestoreError if control has not signed the event."""
        position = entry.event.position
        if self.signatures is None:
            return
        try:
            self.signatures.check_event(*entry)
        except UnsignedError as error:
            if self.signatures.have_begun and position > self.vouched_for:
                raise RestoreError(
                    f"control has not signed event {position} ({error}); if the events up to it are yours, set "
                    f"KAFKA_MESH_CONTROL_VOUCHED_FOR={position}"
                ) from None


async def _append_missing(database: Database, topic: PublishedRecords, signed: Signed) -> tuple[int, int]:
    if topic.first:
        raise RestoreError(f"the topic begins at offset {topic.first}: its beginning was deleted")
    followed = FollowedLog(database)
    await followed.catch_up()
    had, tail = followed.view.position, _Tail(followed)
    last: Entry | None = None
    for entry in _events(topic):
        if last is not None and entry.event.position <= last.event.position:
            continue  # a publisher that began again has repeated it
        if had and entry.event.position == had + 1:
            await _require_same(followed.store, last)
        last = entry
        signed.check(entry)
        if entry.event.position > had:
            await tail.add(entry)
    if last is None or last.event.position <= had:
        await _require_same(followed.store, last)
    await tail.append()
    if last is not None:
        await OutboxPosition(database).store(last.event.position, topic.cluster_id)
    return had, tail.chain.position


class _Tail:
    """The events that the database lacks, in groups that each are one transaction."""

    def __init__(self, followed: FollowedLog) -> None:
        self._store = followed.store
        self._folding = ViewFolding(followed.view)
        self.chain = self._appended = followed.chain
        self._statements: list[Statement] = []

    async def add(self, entry: Entry) -> None:
        position = entry.event.position
        if position != self.chain.position + 1:
            raise RestoreError(f"event {position} follows event {self.chain.position} in the topic: events are missing")
        if not self.chain.fits(entry.event):
            raise RestoreError(f"event {position} does not continue the chain: an event before it was changed")
        before = self._folding.view
        self._folding.fold(entry.event)
        self.chain = self.chain.after(entry.event, entry.body)
        self._statements += statements_of(before, Growth([entry], self._folding.view, self.chain, answer=None))
        self._statements += of_lost(entry.event)
        if position - self._appended.position == GROUP:
            await self.append()

    async def append(self) -> None:
        if self._statements:
            await self._store.append(self._appended, self.chain, self._statements)
            log.info("events are restored", up_to=self.chain.position)
        self._appended, self._statements = self.chain, []


async def _require_same(store: EventLog, published: Entry | None) -> None:
    """RestoreError if the database does not have this event, the last one that both should have."""
    if published is None:
        raise RestoreError("the topic lacks the events that the database has")
    position = published.event.position
    if [each.body for each in await store.entries_after(position - 1, limit=1)] != [published.body]:
        raise RestoreError(f"event {position} is another one in the database: topic and database hold two logs")


def _events(topic: PublishedRecords) -> Iterator[Entry]:
    assembler = Assembler()
    for record in topic.records:
        try:
            body = assembler.take(record.value, record.headers)
            if body is not None:
                yield Entry.read(body)
        except (DamagedPieceError, DecodeError, NewerFormatError) as error:
            raise RestoreError(f"the record at offset {record.offset} is no event: {error}") from None


def main(argv: list[str] | None = None) -> None:
    """Entry of `kafka-mesh restore-log`."""
    configure_logging("restore-log")
    settings = load(RestoreSettings, argv, command="restore-log")
    try:
        had, has = asyncio.run(restore(settings))
    except (RestoreError, UnreadError, StoreUnavailableError, LogMovedError, NewerFormatError) as error:
        print(f"kafka-mesh restore-log: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_FAILED) from None
    print(f"the database had {had} events, and has {has}")  # noqa: T201


if __name__ == "__main__":
    main()
