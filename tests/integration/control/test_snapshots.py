"""Snapshots in a real PostgreSQL: a start reads the newest good one and what came after it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest
from structlog.testing import capture_logs

from services.control.domain.errors import Unavailable
from services.control.domain.view import MeshView, apply
from services.control.steady_clock import SteadyClock
from services.control.store.database import Database
from services.control.store.drafts import Caller
from services.control.store.journal import Journal
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.test_log import append, beat, leading
from tests.integration.control.world import World, until

LENGTH = 30


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Database]:
    opened = Database(database)
    yield opened
    await opened.close()


@pytest.fixture
async def journal(pool: Database) -> Journal:
    """A log of 30 events with snapshots at 10 and 20."""
    made = leading(pool)
    for number in range(1, LENGTH + 1):
        await append(made, beat(1, number))
        if number in (10, 20):
            await made.snapshots.keep(made.view, made.chain)
    return made


async def started(pool: Database) -> Journal:
    fresh = Journal(pool, SteadyClock())
    await fresh.catch_up()
    return fresh


def execute(database: str, statement: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("alter table events disable trigger all")
        connection.execute(statement.encode())


async def test_a_start_takes_the_newest_snapshot_and_comes_to_the_same(journal: Journal, pool: Database) -> None:
    fresh = await started(pool)
    assert fresh.snapshots.last == 20
    assert (fresh.view, fresh.chain) == (journal.view, journal.chain)
    assert list(fresh.recent) == list(journal.recent), "those who list and watch find what was before the snapshot"


@pytest.mark.parametrize(
    "damage",
    [
        "update snapshots set body = 'x' where position = 20",
        "update snapshots set format = 'of tomorrow' where position = 20",
        "update snapshots set event_hash = 'x' where position = 20",
        "update snapshots set body = decode('00', 'hex'), digest = sha256(decode('00', 'hex')) where position = 20",
        "update snapshots set body = (select body from snapshots where position = 10),"
        " digest = (select digest from snapshots where position = 10) where position = 20",
    ],
)
async def test_a_snapshot_that_is_no_good_is_passed_over(
    journal: Journal, pool: Database, database: str, damage: str
) -> None:
    execute(database, damage)
    fresh = await started(pool)
    assert fresh.snapshots.last == 10
    assert fresh.view == journal.view


async def test_without_any_snapshot_the_log_is_read_from_its_beginning(
    journal: Journal, pool: Database, database: str
) -> None:
    execute(database, "delete from snapshots")
    assert (await started(pool)).view == journal.view


async def test_an_earlier_view_is_what_the_log_said_then(journal: Journal) -> None:
    view = MeshView()
    for event in await journal.store.after(0):
        view = apply(view, event)
        assert await journal.view_at(event.position) == view
    assert await journal.view_at(LENGTH + 5) == journal.view


@pytest.mark.parametrize("position", [15, 20, 25], ids=["below a snapshot", "of a snapshot", "above it"])
async def test_an_event_that_was_changed_is_told_at_the_start_and_stops_nobody(
    journal: Journal, pool: Database, database: str, position: int
) -> None:
    changed = "body = overlay(body placing '\\x58'::bytea from length(body))"
    execute(database, f"update events set {changed} where position = {position}")
    with capture_logs() as logs:
        fresh = await started(pool)
    told = [(each["event"], each["position"]) for each in logs if each["log_level"] == "error"]
    assert told == [("the log was changed outside of control: run kafka-mesh verify-log", position)]
    fresh.why_not_leading = ""
    await append(fresh, beat(2, 1))
    assert fresh.view.position == LENGTH + 1


async def test_an_end_that_is_not_what_control_wrote_takes_no_more_events(
    journal: Journal, pool: Database, database: str
) -> None:
    execute(
        database, "update events set body = overlay(body placing '\\x58'::bytea from length(body)) where position = 30"
    )
    fresh = await started(pool)
    fresh.why_not_leading = ""
    with pytest.raises(Unavailable, match="the log was changed outside of control: event 30 is not what it was"):
        await fresh.append([beat(2, 1)], Caller("test"), fresh.view, rests_on=lambda view: view.position)


async def test_a_control_of_a_release_without_chain_can_append_no_more(journal: Journal, database: str) -> None:
    with (
        psycopg.connect(database) as connection,
        pytest.raises(psycopg.errors.RestrictViolation, match="of a newer release than this control"),
    ):
        connection.execute("update log_head set position = 31")


async def test_the_leader_keeps_snapshots_as_the_log_grows_and_when_it_stops(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic, snapshot_every=3) as world:
        snapshots = world.control.journal.snapshots
        for number in range(3):
            await world.register(f"c{number}", f"127.0.0.1:{number + 1}", allow_unreachable=True)
        await until(lambda: snapshots.last == 3, "a snapshot is kept")
        await world.register("c4", "127.0.0.1:4", allow_unreachable=True)
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        assert world.control.journal.snapshots.last == 4
        assert list(world.control.journal.view.state.effective.clusters) == ["c0", "c1", "c2", "c4"]
