"""`kafka-mesh verify-log` on a real database and a real mesh.events: as control leaves them, and after tampering."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from mesh.rpc import events, instances
from services.control import verify_log
from services.control.steady_clock import SteadyClock
from services.control.store.database import Database
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import columns_of
from services.control.store.migrate import migrate
from services.control.verify_log import Report, UncheckedError, VerifySettings, verify
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import CALL, WITHIN, World, checked

FIRST_RELEASE = Path(__file__).parents[2] / "fixtures/logs/0.1.0.log"
EVENTS = 7


@pytest.fixture
async def left_behind(mesh_of_two: World) -> AsyncIterator[World]:
    """A mesh whose control has decided and published a few things, and has stopped in order."""
    world = mesh_of_two
    await world.set("apples", "c1")
    await world.set("pears", "c2")
    await world.set("pears", "c1", accept_skip=True)
    instance = events.ConsumerInstance(group="carts", instance_id="i1", sidecar="sidecar-1", topics=["apples"])
    await world.instances.RegisterInstance(instances.RegisterInstanceRequest(instance=instance), timeout=CALL)
    pause = events.SidecarCommand(pause=events.PauseInstance())
    order = instances.PlaceOrderRequest(target="instances/carts.i1", command=pause)
    await world.instances.PlaceOrder(order, timeout=CALL)
    view = world.control.journal.view
    await world.published(view.position)
    await world.control.journal.snapshots.keep(view, world.control.journal.chain)
    yield world


def differences(world: World) -> list[str]:
    return [str(each) for each in checked(world).differences]


def tamper(world: World, statement: str) -> None:
    """As somebody does who owns the database."""
    with psycopg.connect(world.settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute("alter table events disable trigger all")
        connection.execute(statement.encode())


async def test_what_control_has_left_differs_nowhere(left_behind: World) -> None:
    report = checked(left_behind)
    assert report.differences == []
    assert (report.events, report.published, report.first_chained, report.snapshots) == (EVENTS, EVENTS, 2, 1)
    assert {"clusters": 2, "forwarding_rules": 2, "sidecar_orders": 1}.items() <= report.rows.items()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        # event 3 with one byte of its reason or rule changed
        (
            "update events set body = overlay(body placing '\\x58'::bytea from length(body)) where position = 3",
            "event 3: was changed: event 4 holds another hash of it",
        ),
        ("update events set actor = 'nobody' where position = 4", "event 4: actor is 'nobody'; by the log it is"),
        ("update events set payload = '{}' where position = 1", "event 1: payload is {}; by the log it is"),
        ("delete from events where position = 2", "event 3: follows event 1: 1 event is missing"),
        ("delete from events where position = 7", "log_head: says that the log ends at 7; it ends at 6"),
        ("update log_head set hash = 'x'", "event 7: was changed: log_head holds another hash of it"),
        ("update clusters set ordinal = 9 where name = 'c2'", "clusters c2: ordinal is 9; by the log it is 2"),
        ("delete from sidecar_orders", "sidecar_orders orders/"),
        ("update forwarding_rules set actor = 'x' where match = 'pears'", "forwarding_rules pears: actor is 'x'"),
        ("update rule_versions set rank = 0 where rule_id = 'apples'", "rule_versions apples@3: rank is 0.0"),
        ("insert into rollouts values (99, 'switched', '', now(), now())", "rollouts 99: is not in the log"),
        ("update snapshots set body = 'x'", "snapshot 7: not a view of format"),
    ],
)
async def test_what_was_changed_behind_controls_back_is_named(left_behind: World, statement: str, told: str) -> None:
    tamper(left_behind, statement)
    said = differences(left_behind)
    assert any(each.startswith(told) for each in said), said


async def test_an_event_that_was_changed_with_all_that_vouches_for_it_differs_from_what_was_published(
    left_behind: World,
) -> None:
    """The last event and its hash beside the log: the chain holds again, mesh.events tells."""
    tamper(
        left_behind,
        "update events set body = overlay(body placing '\\x58'::bytea from length(body)) where position = 7",
    )
    tamper(left_behind, "update log_head set hash = sha256((select body from events where position = 7))")
    assert "event 7: mesh.events has another one" in differences(left_behind)


async def test_a_record_that_was_slipped_into_mesh_events_is_named(left_behind: World) -> None:
    producer = Producer({"bootstrap.servers": left_behind.home})
    forged = events.Event(position=EVENTS + 1, actor="mallory", rollout_aborted=events.RolloutAborted(revision=3))
    producer.produce(left_behind.settings.events_topic, forged.SerializeToString())
    assert producer.flush(WITHIN) == 0
    assert differences(left_behind) == ["mesh.events: goes on to event 8; the log ends at 7"]


async def test_the_command_tells_by_its_exit_code(
    left_behind: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = left_behind.settings.database_url.get_secret_value()
    monkeypatch.setenv("KAFKA_MESH_CONTROL_DATABASE_URL", url)
    monkeypatch.setenv("KAFKA_MESH_CONTROL_HOME_BOOTSTRAP_SERVERS", left_behind.home)
    monkeypatch.setenv("KAFKA_MESH_CONTROL_EVENTS_TOPIC", left_behind.settings.events_topic)
    with pytest.raises(SystemExit, match="0"):
        verify_log.main([])
    assert "log: 7 events, all chained" in (said := capsys.readouterr().out)
    assert said.endswith("nothing differs\n")
    tamper(left_behind, "delete from sidecar_orders")
    with pytest.raises(SystemExit, match="1"):
        verify_log.main(["-o", "json", "--without-kafka"])
    [difference] = json.loads(capsys.readouterr().out)["differences"]
    assert difference["place"].startswith("sidecar_orders orders/")
    monkeypatch.setenv("KAFKA_MESH_CONTROL_EVENTS_TOPIC", "no-such-topic")
    with pytest.raises(SystemExit, match="3"):
        verify_log.main([])
    assert "--without-kafka leaves it out" in capsys.readouterr().err


async def test_a_database_that_does_not_answer_is_no_clean_log(left_behind: World) -> None:
    settings = VerifySettings(database_url="postgresql://nobody@127.0.0.1:1/none")  # type: ignore[arg-type]
    with pytest.raises(UncheckedError, match=r"the database 127\.0\.0\.1:1/none can't be read"):
        verify(settings, with_kafka=False)


async def test_the_log_of_the_first_release_goes_on_chained_and_is_covered_by_what_follows(
    postgres: PostgresServer, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    bodies = [base64.b64decode(line) for line in FIRST_RELEASE.read_text(encoding="ascii").splitlines()]
    url = postgres()
    migrate(url, revision="0002")
    _write_as_the_first_release_did(url, bodies)
    migrate(url)
    pool = Database(url)
    journal = Journal(pool, SteadyClock())
    journal.why_not_leading = ""
    await journal.catch_up()
    name = "instances/g.i"
    draft = Draft(name, events.ConsumerInstanceRemoved(name=name, cause="idle"))
    await journal.append([draft], Caller("test"), journal.view, rests_on=lambda view: view.position)
    await pool.close()

    world = World(url, kafka_c1.bootstrap, events_topic)
    report = checked(world, with_kafka=False)
    assert report.first_chained == len(bodies) + 1
    assert _about_the_log(report) == []
    assert [each for each in report.differences if each.place.startswith("rule_versions")] == []
    tamper(world, "update events set body = overlay(body placing '\\x58'::bytea from 60) where position = 3")
    [told] = [each for each in _about_the_log(checked(world, with_kafka=False)) if "was changed" in each]
    assert told == "one of the events 1 to 31: was changed: event 32 holds another hash of it"


def _about_the_log(report: Report) -> list[str]:
    """The tables of the first release were not recorded with its log."""
    return [str(each) for each in report.differences if each.place.startswith(("event", "log_head", "one of"))]


def _write_as_the_first_release_did(url: str, bodies: list[bytes]) -> None:
    with psycopg.connect(url) as connection:
        for body in bodies:
            event = events.Event.FromString(body)
            kind = event.WhichOneof("payload") or ""
            columns = columns_of(event)
            payload = json.dumps(columns["payload"])
            connection.execute(
                "insert into events values (%s, %s, %s, %s, %s, %s, %s, %s)",
                (event.position, event.stream, event.stream_version, kind, columns["time"], event.actor, body, payload),
            )
        connection.execute("update log_head set position = %s", (len(bodies),))
