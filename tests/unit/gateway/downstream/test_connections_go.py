"""A client's connection that has ended is freed at once: the collector has nothing to do."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import FetchResponse, ProduceResponse
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_fetch_forwarding import brought, fetch
from tests.unit.gateway.downstream.test_order import gated, produce, written

FREED_WITHIN_S = 30.0
pytestmark = pytest.mark.usefixtures("patience")
"""A client that leaves a shared connection, since its broker is slow, has more than its connection to be freed."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def stores(client: RawClient) -> bool:
    """Whether a record of the client is stored; not while the gateway still looks for the broker on a busy machine."""
    answer = await client.ask(produce("apples"), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code == 0


async def test_a_client_that_wrote_and_read_leaves_nothing_behind(stage: Stage, no_collector: None) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        there.scripts[ApiKey.FETCH] = brought()
    client = await stage.connect()
    for _ in range(3):
        await client.ask(produce("apples"), 9, ProduceResponse)
        await client.ask(fetch("apples"), 12, FetchResponse)
    (connection,) = stage.gateway.connections
    gone = weakref.ref(connection)
    del connection
    client.close()
    await until(lambda: gone() is None, "the connection is freed", FREED_WITHIN_S)


async def test_a_client_that_leaves_before_its_answer_is_freed_when_the_answer_has_come(
    stage: Stage, no_collector: None
) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    for _ in range(2):
        await until(lambda: stores(client), "the gateway has found the broker")
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    stored = len(stage.c1.requests(ApiKey.PRODUCE))
    client.send(produce("apples"), 9)
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) > stored, "the request is at the broker")
    (connection,) = stage.gateway.connections
    gone = weakref.ref(connection)
    del connection
    client.close()
    await until(lambda: not stage.gateway.connections)
    assert gone() is not None
    gate.set()
    await until(lambda: gone() is None, "the connection is freed", FREED_WITHIN_S)
