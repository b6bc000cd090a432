"""The connection of the leading control, on a real PostgreSQL, when the machine of this control has vanished."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from services.control.store.database import Database
from services.control.store.leader import locked
from services.control.store.log import CHANNEL
from tests.fixtures.databases import PostgresServer
from tests.fixtures.vanishing import vanished
from tests.integration.control.world import until

TAKEN_OVER_S = 30.0
"""PostgreSQL drops the lock after 8 s; the rest is for a busy machine. Without a bound, the kernel sends for 15 min."""


@contextmanager
def machine_vanished(connection: psycopg.AsyncConnection[Any]) -> Iterator[None]:
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        own, far = ours.getsockname()[1], ours.getpeername()[1]
    with vanished(own, far):
        yield


async def test_another_replica_gets_the_lock_though_a_notification_to_the_leader_is_on_its_way(
    postgres: PostgresServer,
) -> None:
    database = Database(postgres.migrated())
    leader, standby = await database.dedicated(), await database.dedicated()
    try:
        await leader.execute(f"listen {CHANNEL}".encode("ascii"))
        assert await locked(leader)
        assert not await locked(standby)
        with machine_vanished(leader):
            await standby.execute("select pg_notify(%s, '1')", (CHANNEL,))
            await until(lambda: locked(standby), "the standby has the lock", TAKEN_OVER_S)
    finally:
        await leader.close()
        await standby.close()
        await database.close()
