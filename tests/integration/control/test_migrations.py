"""A database with audit events is brought up to date while others read and write them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from services.control.store.migrate import migrate
from tests.fixtures.databases import PostgresServer
from tests.fixtures.waiting import wait_until

DAYS = ("20261101", "20261102")
WITHIN_S = 200.0


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """Of the version before audit events were known by their ids, with two days of them."""
    url = postgres()
    migrate(url, revision="0013")
    with psycopg.connect(url) as connection:
        for day in DAYS:
            start = f"{day[:4]}-{day[4:6]}-{day[6:]}"
            connection.execute(
                f"create table audit_events_{day} partition of audit_events "
                f"for values from ('{start}') to ('{start}'::date + 1)".encode()
            )
    return url


def tell(connection: psycopg.Connection, event: uuid.UUID, day: str, second: int) -> None:
    connection.execute(
        "insert into audit_events (time, event_id, cluster_name, service_id, audit_type, audit_status, correlation_id) "
        "values (%s, %s, 'c1', 's', 't', 'SUCCESS', %s)",
        (f"{day} 12:00:{second:02} UTC", event, str(event)),
    )


def indexes(url: str) -> dict[str, bool]:
    """Whether they are valid, of all days and of the table itself."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select indexrelid::regclass::text, indisvalid from pg_index join pg_class on pg_class.oid = indrelid "
            "where relname like 'audit_events%'"
        ).fetchall()
    return dict(found)


def check_up_to_date(url: str) -> None:
    found = indexes(url)
    names = ("correlation_id", "traceability_id", "trace_id")
    wanted = [f"audit_events_{name}" for name in (*names, "refused")]
    wanted += [f"audit_events_{day}_{name}" for day in DAYS for name in (*names, "event_id", "refused")]
    assert {name: found.get(name) for name in wanted} == dict.fromkeys(wanted, True)
    assert "audit_events_pkey" not in found


@contextmanager
def migrating(url: str) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=migrate, args=(url,))
    thread.start()
    try:
        yield thread
    finally:
        thread.join(WITHIN_S)


def test_of_events_with_one_id_the_earliest_stays(database: str) -> None:
    twice, once = uuid.uuid4(), uuid.uuid4()
    with psycopg.connect(database) as connection:
        for second in (2, 1, 3):
            tell(connection, twice, DAYS[0], second)
        tell(connection, once, DAYS[0], 9)
        tell(connection, twice, DAYS[1], 5)
    migrate(database)
    check_up_to_date(database)
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "select event_id, extract(second from time)::int from audit_events order by time"
        ).fetchall()
    assert found == [(twice, 1), (once, 9), (twice, 5)]


def test_nobody_waits_for_a_migration_that_waits_for_somebody(database: str) -> None:
    """A long query keeps the migration from its tables; whoever comes after it is answered all the same."""
    with psycopg.connect(database) as reader, psycopg.connect(database, autocommit=True) as other:
        reader.execute("select count(*) from audit_events")  # holds a lock until its transaction ends
        with migrating(database) as thread:
            wait_until(lambda: _waits(other), "the migration waits for a lock", WITHIN_S)
            other.execute("set statement_timeout = '60s'")  # if it waited behind the migration, it would wait for ever
            other.execute("select count(*) from audit_events")
            tell(other, uuid.uuid4(), DAYS[0], 1)
            assert thread.is_alive()
            reader.rollback()
    check_up_to_date(database)


def _waits(connection: psycopg.Connection) -> bool:
    [(count,)] = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return bool(count)


def test_a_run_that_broke_off_is_gone_on_with(database: str) -> None:
    event = uuid.uuid4()
    made = "create unique index concurrently audit_events_{0}_event_id on audit_events_{0} (event_id)"
    with psycopg.connect(database, autocommit=True) as connection:
        for second in (1, 2):
            tell(connection, event, DAYS[1], second)
        connection.execute(made.format(DAYS[0]).encode())
        with pytest.raises(psycopg.errors.UniqueViolation):  # which leaves an index that counts for nothing
            connection.execute(made.format(DAYS[1]).encode())
    assert not indexes(database)[f"audit_events_{DAYS[1]}_event_id"]
    migrate(database)
    check_up_to_date(database)


def test_two_migrators_wait_for_each_other(database: str) -> None:
    environment = os.environ | {"KAFKA_MESH_CONTROL_DATABASE_URL": database}
    command = [sys.executable, "-m", "services.control.store.migrate"]
    migrators = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [migrator.wait(WITHIN_S) for migrator in migrators] == [0, 0]
    check_up_to_date(database)
