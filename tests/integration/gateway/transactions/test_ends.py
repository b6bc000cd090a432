"""The ends of transactions in each state that a client can bring about: the gateway answers as a broker does."""

import asyncio
import uuid

import pytest

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from services.gateway.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules
from tests.integration.gateway.talking import comes_true, talking_to
from tests.unit.gateway.downstream.raw_client import RawClient

FIRST, SECOND = 1, 5
"""Versions of EndTxn, one for each protocol of transactions."""
AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
DONE, WRONG = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE
SCRIPTS = {
    "abort": {FIRST: [WRONG], SECOND: [DONE]},
    "commit": {FIRST: [WRONG], SECOND: [WRONG]},
    "add abort abort": {FIRST: [DONE, DONE], SECOND: [DONE, DONE]},
    "add abort commit": {FIRST: [DONE, WRONG], SECOND: [DONE, WRONG]},
    "add commit commit": {FIRST: [DONE, DONE], SECOND: [DONE, DONE]},
    "add commit abort": {FIRST: [DONE, WRONG], SECOND: [DONE, WRONG]},
}
"""Steps -> what each end is answered; the second one repeats the epoch of the first, as for a lost answer."""


@pytest.mark.parametrize("through", ["broker", "gateway"])
@pytest.mark.parametrize("protocol", [FIRST, SECOND])
@pytest.mark.parametrize("script", SCRIPTS)
def test_an_end_is_answered_as_a_broker_does(
    script: str,
    protocol: int,
    through: str,
    kafka_c1: KafkaCluster,
    rules: Rules,
    create_topic: CreateTopic,
    start_gateway: StartGateway,
) -> None:
    topic = f"ends-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_c1, topic)
    address = kafka_c1.bootstrap
    if through == "gateway":
        address = start_gateway(rules.to("c1", [topic])).address
    answers = asyncio.run(played(address, topic, script.split(), protocol))
    assert answers == SCRIPTS[script][protocol]


async def played(address: str, topic: str, steps: list[str], protocol: int) -> list[ErrorCode]:
    name = f"{topic}-id"
    answers: list[ErrorCode] = []
    async with talking_to(address) as client:
        begun = await begin(client, name)
        for step in steps:
            if step == "add":
                added = [AddPartitionsToTxnTopic(topic, [0])]
                message = AddPartitionsToTxnRequest([], name, begun.producer_id, begun.producer_epoch, added)
                told = await client.ask(message, 3, AddPartitionsToTxnResponse)
                assert told.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
            else:
                message_ = EndTxnRequest(name, begun.producer_id, begun.producer_epoch, step == "commit")
                answers.append(await ended(client, message_, protocol))
    return answers


async def begin(client: RawClient, name: str) -> InitProducerIdResponse:
    async def asked() -> InitProducerIdResponse:
        await client.ask(FindCoordinatorRequest(name, 1), 3, FindCoordinatorResponse)  # it makes the broker's topic
        return await client.ask(InitProducerIdRequest(name, 60_000), 4, InitProducerIdResponse)

    begun = await comes_true(asked, lambda answer: answer.error_code not in AGAIN, "the producer has an id")
    assert begun.error_code == 0
    return begun


async def ended(client: RawClient, message: EndTxnRequest, version: int) -> ErrorCode:
    """Asked again while the broker still writes the markers of the end before."""

    async def asked() -> ErrorCode:
        return ErrorCode((await client.ask(message, version, EndTxnResponse)).error_code)

    return await comes_true(asked, lambda error: error not in AGAIN, "the transaction ends")
