"""What members report is no decision: it stays out of the log, counts for every control, and is kept for some days."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from mesh.rpc import events, instances
from services.control.domain.reports import Payload, Reported
from services.control.store.database import Database
from services.control.store.migrate import migrate
from services.control.store.reports import Reports
from tests.fixtures.databases import PostgresServer
from tests.integration.control.replays import DONE, RUNNING, Member, part, replay_now, start, to_backend
from tests.integration.control.sidecar import Sidecar
from tests.integration.control.world import CALL, World, until

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE = "instances/g.one"
REPLAY = "replays/1"


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Database]:
    pool = Database(database)
    yield pool
    await pool.close()


def of_control(pool: Database) -> Reports:
    return Reports(pool, lambda: NOON)


def holds(sidecar: str) -> events.ConsumerInstanceRegistered:
    instance = events.ConsumerInstance(name=ONE, group="g", instance_id="one", sidecar=sidecar)
    return events.ConsumerInstanceRegistered(instance=instance)


def as_far_as(*partitions: int) -> events.ReplayProgressed:
    return events.ReplayProgressed(name=REPLAY, partitions=[part(number * 10, 0, number) for number in partitions])


async def add(control: Reports, name: str, payload: Payload) -> None:
    await control.add(name, "s1", lambda _known: payload)


async def test_each_control_adds_on_top_of_what_the_others_have_added(pool: Database) -> None:
    first, second = of_control(pool), of_control(pool)
    await first.catch_up()
    await second.catch_up()
    await add(first, ONE, holds("s1"))
    seen: list[Reported] = []

    def decide(known: Reported) -> Payload | None:
        seen.append(known)
        return None if known.instances else holds("s2")

    assert await second.add(ONE, "s2", decide) is None
    assert [list(each.instances) for each in seen] == [[], [ONE]]
    assert second.known == first.known


async def test_who_follows_is_up_to_date_also_where_reports_are_deleted_already(pool: Database, database: str) -> None:
    first, follower = of_control(pool), of_control(pool)
    await first.catch_up()
    await follower.catch_up()
    await add(first, ONE, holds("s1"))
    await follower.catch_up()
    assert follower.known.instances[ONE].sidecar == "s1"
    await add(first, REPLAY, as_far_as(1, 2))
    await add(first, REPLAY, as_far_as(2, 3))
    await add(first, ONE, events.ConsumerInstanceRemoved(name=ONE))
    with psycopg.connect(database) as connection:
        connection.execute("delete from member_reports where sequence < 3")
    await follower.catch_up()
    assert follower.known == first.known
    assert (follower.known.sequence, dict(follower.known.instances)) == (4, {})
    assert [each.partition for each in follower.known.progress[REPLAY].partitions] == [1, 2, 3]


async def test_reports_are_deleted_by_their_age_and_what_they_come_to_stays(pool: Database) -> None:
    control = of_control(pool)
    await control.catch_up()
    await add(control, ONE, holds("s1"))
    await add(control, REPLAY, as_far_as(1))
    age = (datetime.now(UTC) - NOON) / timedelta(days=1)
    await control.forget(int(age) + 2)
    assert len(await control.before(ONE, None, 10)) == 1
    await control.forget(max(1, int(age) - 1))
    assert await control.before(ONE, None, 10) == []
    after_a_start = of_control(pool)
    await after_a_start.catch_up()
    assert after_a_start.known == control.known
    await control.drop_progress({REPLAY})
    after_a_start = of_control(pool)
    await after_a_start.catch_up()
    assert (list(after_a_start.known.instances), after_a_start.known.progress) == ([ONE], {})


async def test_instances_of_an_earlier_release_are_there_after_the_migration(postgres: PostgresServer) -> None:
    database = postgres()
    migrate(database, revision="0015")
    with psycopg.connect(database) as connection:
        spec = '{"name": "instances/g.one", "group": "g", "instance_id": "one", "sidecar": "s1", "min_bytes": -1}'
        connection.execute("insert into consumer_instances values (%s, 's1', %s, 7)", [ONE, spec])
    migrate(database)
    pool = Database(database)
    reports = of_control(pool)
    await reports.catch_up()
    instance = events.ConsumerInstance(name=ONE, group="g", instance_id="one", sidecar="s1", min_bytes=-1)
    assert dict(reports.known.instances) == {ONE: instance}
    await pool.close()


async def test_no_coming_or_going_and_no_progress_reaches_the_log_and_the_next_control_goes_on_from_it(
    world: World,
) -> None:
    s1 = Sidecar(world, "s1")
    await s1.beats()
    await s1.holds("billing.one", topics=("orders",), kind=events.INSTANCE_KIND_REACTIVE)
    member = Member(world, "s1")
    async with member.follows() as given:
        replay = await start(world, to_backend())
        await given.next()
        before = world.control.journal.view.position
        await member.reports(replay, RUNNING, part(10, 10), part(5, 5, 1))
        await until(lambda: replay.name in world.control.reports.known.progress, "it is stored")
        assert world.control.journal.view.position == before
    kinds = {event.WhichOneof("payload") for event in await world.history()}
    assert kinds == {"replay_started", "replay_assigned"}
    await world.stop()
    await world.start()
    listed = await world.instances.ListInstances(instances.ListInstancesRequest(), timeout=CALL)
    assert [each.name for each in listed.instances] == ["instances/billing.one"]
    assert [each.position for each in (await replay_now(world, replay)).partitions] == [10, 5]
    async with Member(world, "s1").follows() as given:
        told = await given.next()
        assert [each.position for each in told.partitions] == [10, 5]
        await Member(world, "s1").reports(replay, DONE, part(20, 20))
    await until(lambda: not world.control.reports.known.progress, "nobody needs it any more")
    done = await replay_now(world, replay)
    assert [(each.position, each.records) for each in done.partitions] == [(20, 20), (5, 5)]
    [end] = [event.replay_ended for event in await world.history() if event.HasField("replay_ended")]
    assert len(end.partitions) == 2
