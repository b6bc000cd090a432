"""Metadata of all topics, of which there are very many: the gateway serves others meanwhile."""

import asyncio

import pytest

from mesh.routing import ExactName, ForwardingRule, Match, NamePrefix, RoutingTable, RuleVersion
from services.gateway.requests.mesh import metadata
from services.gateway.requests.pauses import TOPICS_IN_A_STEP
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import MetadataRequest, MetadataResponse
from tests.unit.gateway.downstream.conftest import Stage

MANY = 3_000


async def test_others_are_served_while_an_answer_with_all_topics_is_made(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = stage.c1.topics = {"apples": 2, **{f"pears-{number}": 1 for number in range(MANY)}}
    matches: list[Match] = [ExactName("apples"), NamePrefix("pears-")]
    rules = [ForwardingRule(f"r{rank}", match, "c1") for rank, match in enumerate(matches)]
    versions = [RuleVersion(rule, float(rank), 2) for rank, rule in enumerate(rules)]
    stage.gateway.mesh.run_table(RoutingTable(2, stage.gateway.mesh.table.clusters.values(), versions))
    at_once, most, shown = 0, 0, metadata._shown

    def counted(*arguments: object) -> object:
        nonlocal at_once
        at_once += 1
        return shown(*arguments)  # type: ignore[arg-type]

    async def others() -> None:
        nonlocal at_once, most
        while True:
            most, at_once = max(most, at_once), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(metadata, "_shown", counted)
    client = await stage.connect()
    serving = asyncio.create_task(others())
    try:
        answers = [await client.ask(MetadataRequest(topics=None), version, MetadataResponse) for version in (1, 12, 12)]
    finally:
        serving.cancel()
    for answer in answers:
        assert {topic.name for topic in answer.topics} == set(stage.c1.topics)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}
        assert all(len(topic.partitions) == stage.c1.topics[topic.name or ""] for topic in answer.topics)
    assert 0 < most <= TOPICS_IN_A_STEP
    del topics["pears-7"]
    answer = await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    assert {topic.name for topic in answer.topics} == set(stage.c1.topics)


async def test_a_client_that_leaves_in_the_middle_of_it_harms_nobody(stage: Stage) -> None:
    stage.c1.topics = {"apples": 2, **{f"apples-{number}": 1 for number in range(MANY)}}
    versions = [RuleVersion(ForwardingRule("r", NamePrefix("apples"), "c1"), 1.0, 2)]
    stage.gateway.mesh.run_table(RoutingTable(2, stage.gateway.mesh.table.clusters.values(), versions))
    for _ in range(3):
        client = await stage.connect()
        client.send(MetadataRequest(topics=None), 12)
        await client.written()
        client.close()
    other = await stage.connect()
    answer = await other.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    assert len(answer.topics) == MANY + 1
