"""`kafka-mesh restore-log`: a database that was lost, or is older, gets its events again from a real mesh.events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest
from confluent_kafka import Producer

from mesh.rpc import events
from services.control.restore_log import RestoreError, RestoreSettings, restore
from services.control.upstream.published_records import published_records
from services.control.verify_log import VerifySettings, verify
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.test_acls import Acls, acl
from tests.integration.control.test_users import Users
from tests.integration.control.world import WITHIN, World

EVENTS = 6


@pytest.fixture
async def settings(mesh_of_two: World) -> AsyncIterator[RestoreSettings]:
    """The settings of a mesh whose control leads, and has decided and published."""
    await mesh_of_two.set("apples", "c1")
    await mesh_of_two.set("pears", "c2")
    await mesh_of_two.set("pears", "c1", accept_skip=True)
    await Acls(mesh_of_two).create(acl("apples"))
    position = mesh_of_two.control.journal.view.position
    await mesh_of_two.published(position)
    yield RestoreSettings.model_validate(mesh_of_two.settings.model_dump())


def of_database(settings: RestoreSettings, url: str) -> RestoreSettings:
    return settings.model_copy(update={"database_url": type(settings.database_url)(url)})


@pytest.fixture
def empty(postgres: PostgresServer, settings: RestoreSettings) -> RestoreSettings:
    """The same mesh with a new database."""
    return of_database(settings, postgres.migrated())


def differences(settings: RestoreSettings) -> list[str]:
    report = verify(VerifySettings.model_validate(settings.model_dump()), with_kafka=True)
    return [str(each) for each in report.differences]


def run(settings: RestoreSettings, statement: str) -> None:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute("alter table events disable trigger all")
        connection.execute(statement.encode())


async def test_a_lost_database_comes_back_as_it_was(empty: RestoreSettings) -> None:
    had, has = await restore(empty)
    assert had == 0
    assert has >= EVENTS
    assert differences(empty) == []
    assert await restore(empty) == (has, has)


async def test_a_control_with_the_restored_database_decides_and_publishes_no_event_twice(
    empty: RestoreSettings, kafka_c1: KafkaCluster
) -> None:
    _, has = await restore(empty)
    url = empty.database_url.get_secret_value()
    async with World(url, kafka_c1.bootstrap, empty.events_topic) as world:
        assert (await world.explain("pears")).cluster == "c1"
        assert await Acls(world).names() == ["apples"]
        await world.set("plums", "c2")
        await world.published(has + 1)
    assert differences(empty) == []
    assert offsets(empty) == has + 1


def offsets(settings: RestoreSettings) -> int:
    return sum(1 for _ in published_records(settings, "a-test").records)


async def test_an_older_database_gets_what_it_lacks(empty: RestoreSettings, mesh_of_two: World) -> None:
    _, then = await restore(empty)
    await mesh_of_two.set("plums", "c2")
    await mesh_of_two.published(then + 1)
    assert await restore(empty) == (then, then + 1)
    assert differences(empty) == []


async def test_verifiers_of_a_backup_are_forgotten_if_later_decisions_were_about_their_users(
    empty: RestoreSettings, mesh_of_two: World
) -> None:
    """Neither the password that a user had before nor a deleted user comes back."""
    users = Users(mesh_of_two)
    for name in ("ann", "bob", "shop"):
        last = await users.set(name)
    await mesh_of_two.published(last)
    await restore(empty)
    run(
        empty,
        "insert into user_verifiers (name, revision, body) values ('ann', 1, ''), ('bob', 1, ''), ('shop', 1, '')",
    )
    await users.set("shop")
    await mesh_of_two.published(await users.delete("bob"))
    await restore(empty)
    with psycopg.connect(empty.database_url.get_secret_value()) as connection:
        assert connection.execute("select name from user_verifiers").fetchall() == [("ann",)]


async def test_the_log_of_another_mesh_is_refused(empty: RestoreSettings, settings: RestoreSettings) -> None:
    await restore(empty)
    last = "where position = (select max(position) from events)"
    run(empty, f"update events set body = overlay(body placing '\\x58'::bytea from length(body)) {last}")
    with pytest.raises(RestoreError, match="topic and database hold two logs"):
        await restore(empty)


async def test_no_control_may_lead_meanwhile(settings: RestoreSettings) -> None:
    with pytest.raises(RestoreError, match="stop every control first"):
        await restore(settings)


async def test_a_forged_event_ends_the_restoring(empty: RestoreSettings) -> None:
    producer = Producer({"bootstrap.servers": empty.home_bootstrap_servers[0]})
    forged = events.Event(position=99, actor="mallory", rollout_aborted=events.RolloutAborted(revision=3))
    producer.produce(empty.events_topic, forged.SerializeToString())
    assert producer.flush(WITHIN) == 0
    with pytest.raises(RestoreError, match="events are missing"):
        await restore(empty)
