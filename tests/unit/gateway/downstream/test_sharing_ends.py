"""Shared connections when something ends: a client, its own connection, a broker for a while."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from services.gateway.upstream.shared import Pool, PoolGauges, SharedConnection
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from services.gateway.wire.messages.metadata import MetadataResponseBroker
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.downstream.test_forwarding import code_of
from tests.unit.gateway.downstream.test_order import gated, produce, written
from tests.unit.gateway.downstream.test_sharing import named, pool_of, seated, shared_calls, values

pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
async def sharing(tmp_path: Path) -> AsyncIterator[Stage]:
    """Even a single client shares."""
    async with staged(tmp_path, shared_connections=1, share_from_clients=1) as stage:
        stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        yield stage


async def test_what_waits_to_be_sent_is_carried_through_when_its_client_has_left(sharing: Stage) -> None:
    (client,) = await seated(sharing)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(named("straight", 1), 9)
    client.send(produce("apples", b"planned 1", acks=0), 9, answered=False)
    (connection,) = sharing.gateway.connections
    await until(lambda: connection.unanswered == 2)
    client.abort()
    await until(lambda: not sharing.gateway.connections)
    gate.set()
    await until(lambda: values(sharing) == ["straight 1", "planned 1"])
    await until(lambda: not pool_of(sharing).clients)
    assert not sharing.gateway.mesh.producing
    assert not sharing.gateway.mesh.budget.held_bytes


async def test_nothing_overtakes_what_goes_by_a_connection_of_its_own_that_had_to_be_made_anew(sharing: Stage) -> None:
    (client,) = await seated(sharing)
    (connection,) = sharing.gateway.connections
    (own,) = [seat.own for seat in connection._lanes.seats.values()]
    assert own is not None
    own.lost("closed by its broker, for nothing has been sent for long")
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    before = shared_calls()
    planned = named("planned", 1)
    planned.transactional_id = "t"
    client.send(planned, 9)
    client.send(named("behind", 1), 9)
    await until(lambda: connection.unanswered == 2)
    await until(lambda: values(sharing))
    gate.set()
    for _ in range(2):
        assert code_of(await client.answer(ProduceResponse)) == 0
    assert values(sharing) == ["planned 1", "behind 1"]
    assert shared_calls() == before


async def test_nothing_overtakes_what_was_sent_without_acks(sharing: Stage) -> None:
    """Nobody can tell when that has arrived: what follows takes the same connection."""
    (client,) = await seated(sharing)
    gate = asyncio.Event()

    async def slow(header: RequestHeader, message: ProduceRequest) -> ProduceResponse | None:
        if message.acks == 0:
            await gate.wait()
            return None
        return written(message)

    sharing.c1.scripts[ApiKey.PRODUCE] = slow
    before = shared_calls()
    for number in (1, 2):
        client.send(produce("apples", f"unheard {number}".encode(), acks=0), 9, answered=False)
    client.send(named("heard", 1), 9)
    client.send(MetadataRequest(), 9)  # the answers of the client's requests have their order
    (connection,) = sharing.gateway.connections
    await until(lambda: connection.unanswered == 2 or len(values(sharing)) > 1)
    gate.set()
    assert code_of(await client.answer(ProduceResponse)) == 0
    await client.answer(MetadataResponse)
    assert code_of(await client.ask(named("heard", 2), 9, ProduceResponse)) == 0
    assert values(sharing) == ["unheard 1", "unheard 2", "heard 1", "heard 2"]
    assert shared_calls() == before


def test_a_scrape_while_a_connection_is_opened_does_not_lose_it() -> None:
    open_one = SimpleNamespace(ended=None, clients=0, in_flight=0, takes_from_anybody=lambda _: True)
    made = cast(SharedConnection, open_one)

    def opened() -> SharedConnection:
        list(PoolGauges().collect())  # which a thread does, whenever it likes
        return made

    pool = Pool("scraped", 1, 1, opened)
    pool.clients = 1
    assert pool.connection(0.0) is made
    assert pool.connections == [made]


async def test_a_broker_that_comes_back_has_no_more_connections_than_before(sharing: Stage) -> None:
    clients = await seated(sharing, 2)
    pool = pool_of(sharing)
    (before,) = pool.connections
    brokers = sharing.gateway.mesh.clusters._clusters["c1"]._brokers
    others = [MetadataResponseBroker(7, "127.0.0.1", 1)]
    brokers.learn(MetadataResponse(brokers=others, controller_id=7))
    await until(lambda: before.ended is not None)
    sharing.gateway.mesh.clusters.refresh("c1", ("apples",), lambda _: None)
    await until(lambda: 1 in brokers._knowledge.brokers)
    for client in (*clients, *await seated(sharing)):
        shared = shared_calls()
        while shared_calls() == shared:
            await client.ask(produce("apples"), 9, ProduceResponse)
    assert pool_of(sharing) is pool
    assert (pool.clients, [each.clients for each in pool.connections]) == (3, [3])
