"""A signed log, on a real database and a real cluster: what somebody else writes into either moves no topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import grpc
import psycopg
import pytest
from confluent_kafka import Producer

from mesh.event_log import Chain
from mesh.rpc import events, routing
from services.control.domain.past.snapshots import view_to_bytes
from services.control.store import log_signing
from services.control.store.log import columns_of
from services.gateway.downstream.last_table import FILE_NAME
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import CALL, WITHIN, World, checked, refused, until
from tests.integration.router.parts import ServiceProcess


@pytest.fixture
async def signed(
    database: str,
    kafka_c1: KafkaCluster,
    events_topic: str,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[World]:
    """Control with a certificate, a cluster and a rule: three signed events."""
    monkeypatch.setattr(log_signing, "LOOK_EVERY_S", 0.2)
    folder = certificate_of(authority, "control", "control-1").folder
    made = World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder)
    made.caller = certificate_of(authority, "admin", "ada")
    async with made as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.set("apples", "c1")
        await world.published(world.control.journal.view.position)
        yield world


@pytest.fixture
def start_router(
    authority: Authority, kafka_c1: KafkaCluster, events_topic: str, tmp_path: Path
) -> Iterator[Callable[..., ServiceProcess]]:
    started: list[ServiceProcess] = []

    def start(**settings: str) -> ServiceProcess:
        own = {
            "NAME": "r1",
            "HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap,
            "EVENTS_TOPIC": events_topic,
            "SNAPSHOTS_TOPIC": f"{events_topic}.snapshots",
            "SNAPSHOT_EVERY_EVENTS": "1",
            "RPC_TLS_FOLDER": str(certificate_of(authority, "router", "r1").folder),
        }
        router = ServiceProcess("router", free_block(2), tmp_path / "r1.log", {**own, **settings})
        started.append(router)
        router.start()
        return router

    yield start
    for router in started:
        router.stop()


def forged(chain: Chain) -> events.Event:
    """A rule in ada's name that continues the chain."""
    rule = routing.RuleSpec(rule_id="bananas", match=routing.RuleMatch(topic="bananas"), target_cluster="c1")
    event = events.Event(
        position=chain.position + 1,
        event_id="2f0b2d0e-6f6f-4d4b-9a87-8a1f5f0f5d11",
        stream="rules",
        stream_version=chain.position + 1,
        actor="ada",
        format=2,
        previous_hash=chain.hash,
        rule_set_changed=events.RuleSetChanged(changes=[events.RuleChange(created=rule, rank=9.0)]),
    )
    event.time.GetCurrentTime()
    return event


async def is_at(router: ServiceProcess, position: int, *, unsigned: int = 0) -> None:
    def there() -> bool:
        return (router.metric("position"), router.metric("log_unsigned_events")) == (position, unsigned)

    await asyncio.to_thread(wait_until, lambda: router.ready() == "ready", "the router is ready", WITHIN)
    await asyncio.to_thread(wait_until, there, f"the router is at {position}, {unsigned} events wait", WITHIN)


async def test_a_record_that_somebody_else_wrote_into_mesh_events_moves_no_topic(
    signed: World, start_router: Callable[..., ServiceProcess], events_topic: str
) -> None:
    router, journal = start_router(), signed.control.journal
    before = journal.view.position
    await is_at(router, before)
    event = forged(journal.chain)
    producer = Producer({"bootstrap.servers": signed.home})
    producer.produce(events_topic, event.SerializeToString(), str(event.position), partition=0)
    assert await asyncio.to_thread(producer.flush, CALL) == 0
    await is_at(router, before, unsigned=1)
    router.stop()
    router.start()
    await is_at(router, before, unsigned=1)

    await signed.set("cherries", "c1")
    await is_at(router, before + 1)
    assert "no signature" in router.log_file.read_text()


async def test_a_gateway_goes_on_with_its_table_while_its_router_refuses_what_others_wrote(
    signed: World,
    start_router: Callable[..., ServiceProcess],
    events_topic: str,
    authority: Authority,
    tmp_path: Path,
) -> None:
    router, port, before = start_router(), free_block(2), signed.control.journal.view.position
    settings = {
        "NAME": "g1",
        "LISTEN": f"127.0.0.1:{port}",
        "ROUTER_ADDRESSES": router.address,
        "STATE_DIR": str(tmp_path / "state"),
        "RPC_TLS_FOLDER": str(certificate_of(authority, "gateway", "g1").folder),
    }
    gateway = ServiceProcess("gateway", port, tmp_path / "g1.log", settings)
    gateway.start()
    try:

        def runs(revision: int) -> None:
            wait_until(lambda: gateway.metric("table_revision") == revision, f"g1 runs {revision}", WITHIN)

        await asyncio.to_thread(wait_until, lambda: gateway.ready() == "ready", "it is ready", WITHIN)
        await asyncio.to_thread(runs, before)
        far = forged(Chain(before + 7))
        continuing = forged(signed.control.journal.chain)
        producer = Producer({"bootstrap.servers": signed.home})
        for value in (b"\xff\xff", far.SerializeToString(), continuing.SerializeToString()):
            producer.produce(events_topic, value, partition=0)
        assert await asyncio.to_thread(producer.flush, CALL) == 0
        await is_at(router, before, unsigned=1)
        assert router.metric("log_refused_records_total") == 2
        said = router.log_file.read_text()
        assert "records of the log that control has not written are refused" in said
        assert "events that control has not signed do not count" in said
        assert gateway.metric("table_revision") == before

        await signed.set("cherries", "c1")
        await asyncio.to_thread(runs, before + 1)
        kept = tmp_path / "state" / FILE_NAME
        await asyncio.to_thread(wait_until, lambda: b"cherries" in kept.read_bytes(), "the table is on disk", WITHIN)
        assert b"bananas" not in kept.read_bytes()
    finally:
        await asyncio.to_thread(gateway.stop)


async def test_a_log_that_control_has_not_signed_is_refused_unless_the_router_may_take_it(
    database: str,
    kafka_c1: KafkaCluster,
    events_topic: str,
    start_router: Callable[..., ServiceProcess],
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.published(1)
        careful = start_router()
        reason = "control has signed none of the 1 events"
        await asyncio.to_thread(wait_until, lambda: reason in careful.ready(), "the router says why", WITHIN)
        careful.stop()
        await is_at(start_router(UNSIGNED_LOG="accept"), 1)


async def test_control_adds_nothing_to_an_event_that_the_database_holds_and_nobody_signed(signed: World) -> None:
    event = forged(signed.control.journal.chain)
    insert_behind_control(signed, event)
    await signed.control.journal.catch_up()
    unsigned = f"has not signed event {event.position}"
    error = await refused(signed.set("pears", "c1"), grpc.StatusCode.UNAVAILABLE, unsigned)
    assert f"KAFKA_MESH_CONTROL_VOUCHED_FOR={event.position}" in (error.details() or "")
    assert any("control's signatures do not vouch for" in str(each) for each in checked(signed).differences)

    await signed.stop()
    signed.settings = signed.settings.model_copy(update={"vouched_for": event.position})
    await signed.start()
    journal = signed.control.journal
    await until(lambda: journal.view.position == event.position + 1, "control has signed the log again")
    assert (await signed.history())[0].log_signed.subject == "CN=control-control-1"
    await signed.set("pears", "c1")


async def test_a_snapshot_that_control_has_not_signed_is_skipped(signed: World) -> None:
    journal = signed.control.journal
    await journal.snapshots.keep(journal.view, journal.chain)
    found = await journal.snapshots.newest()
    assert found is not None
    assert found[0].position == journal.view.position
    forged_body = view_to_bytes(replace(journal.view, frozen=forged(journal.chain)))
    with psycopg.connect(signed.settings.database_url.get_secret_value()) as connection:
        digest = sha256(forged_body).digest()
        connection.execute(b"update snapshots set body = %s, digest = %s", (forged_body, digest))
    assert await journal.snapshots.newest() is None
    await signed.stop()
    await signed.start()
    assert signed.control.journal.view.frozen is None


async def test_a_renewed_certificate_signs_at_once(
    signed: World, authority: Authority, start_router: Callable[..., ServiceProcess]
) -> None:
    before = signed.control.journal.view.position
    certificate_of(authority, "control", "control-1")
    await until(lambda: signed.control.journal.view.position == before + 1, "the new certificate has signed the log")
    await signed.set("pears", "c1")
    await is_at(start_router(), before + 2)
    assert signed.control.journal.view.position == before + 2


async def test_a_log_from_before_the_certificate_is_signed_when_control_has_one(
    database: str,
    kafka_c1: KafkaCluster,
    events_topic: str,
    authority: Authority,
    start_router: Callable[..., ServiceProcess],
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
    folder = certificate_of(authority, "control", "control-1").folder
    async with World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder) as world:
        await until(lambda: world.control.journal.view.position == 2, "control has signed the log")
        await is_at(start_router(), 2)
        assert checked(world).differences == []


def insert_behind_control(world: World, event: events.Event) -> None:
    """As somebody does who owns the database and knows how control writes."""
    body = event.SerializeToString()
    row = {**columns_of(event), "body": body, "payload": "{}"}
    names, places = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    with psycopg.connect(world.settings.database_url.get_secret_value()) as connection:
        connection.execute(f"insert into events ({names}) values ({places})".encode(), row)
        after = Chain().after(event, body)
        connection.execute(b"update log_head set position = %s, hash = %s", (event.position, after.hash))
