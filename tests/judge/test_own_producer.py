"""The judge's own producer says of a commit whether it may have happened."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from judge.clients.client import Sent
from judge.clients.own_producer import OwnProducer
from judge.clients.roads import Roads
from judge.history import Guarantee, Outcome
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
)
from services.gateway.wire.messages.find_coordinator import Coordinator
from tests.unit.gateway.scripted_broker import broker, once_each

COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS, COORDINATOR_LOADS, INVALID_PRODUCER_ID_MAPPING = 15, 51, 14, 49


async def _committed(*answers: int) -> Sent:
    """An empty transaction whose EndTxn gets these answers, one for each try."""
    async with broker({"apples": 1}) as coordinator:

        def found(_header: Any, request: Any) -> FindCoordinatorResponse:
            host, port = "127.0.0.1", coordinator.port
            coordinators = [Coordinator(key=key, node_id=1, host=host, port=port) for key in request.coordinator_keys]
            return FindCoordinatorResponse(coordinators=coordinators)

        coordinator.scripts = {
            ApiKey.FIND_COORDINATOR: found,
            ApiKey.INIT_PRODUCER_ID: lambda _header, _request: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            ApiKey.ADD_PARTITIONS_TO_TXN: lambda _header, _request: AddPartitionsToTxnResponse(),
            ApiKey.END_TXN: once_each(*(EndTxnResponse(error_code=code) for code in answers)),
        }
        roads = Roads((("127.0.0.1", coordinator.port),), "judge", random.Random(1))
        producer = OwnProducer(roads, Guarantee.TRANSACTIONAL, "t")
        try:
            return await asyncio.to_thread(producer.transaction, [], commit=True, between=lambda: None)
        finally:
            producer.close()


@pytest.mark.parametrize("first", [COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS])
async def test_a_commit_that_may_have_been_written_is_not_a_failure(first: int) -> None:
    assert (await _committed(first, INVALID_PRODUCER_ID_MAPPING)).outcome is Outcome.INFO


async def test_a_commit_that_a_coordinator_did_not_take_is_a_failure() -> None:
    assert (await _committed(COORDINATOR_LOADS, INVALID_PRODUCER_ID_MAPPING)).outcome is Outcome.FAIL


async def test_a_commit_is_tried_until_it_is_answered() -> None:
    assert (await _committed(CONCURRENT_TRANSACTIONS, 0)).outcome is Outcome.OK
