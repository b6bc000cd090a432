"""Directories of all real brokers, told apart by their names."""

from __future__ import annotations

import pytest

from services.gateway.requests.knowledge import BrokerAddress
from services.gateway.requests.plan import Broker, Refresh, Unreachable
from services.gateway.requests.topics import describe_log_dirs
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples", "_*"], "c2": ["bananas"]}, by_node_id=True)


def asking(world: World, *topics: str, version: int = 5) -> Playbook:
    wanted = [DescribableLogDirTopic(topic, [0]) for topic in topics] or None
    return Playbook(describe_log_dirs.handle, DescribeLogDirsRequest(wanted), version, world.view())


def holding(*topics: str) -> DescribeLogDirsResponse:
    found = [DescribeLogDirsTopic(topic, [DescribeLogDirsPartition(0, 1000, 0)]) for topic in topics]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", found, 10_000, 9_000)])


def shown(book: Playbook) -> dict[str, list[str]]:
    return {result.log_dir: [topic.name for topic in result.topics] for result in book.answer.results}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_every_real_broker_is_asked_and_names_tell_them_apart(world: World, version: int) -> None:
    world.clusters["c1"].brokers[4] = BrokerAddress(4, "c1", 9094, None)
    book = asking(world, version=version)
    assert [(call.cluster, call.target) for call in book.asked()] == [
        ("c1", Broker(1)),
        ("c1", Broker(4)),
        ("c2", Broker(2)),
    ]
    book.answered(holding("apples"), holding("apples"), holding("bananas"))
    assert shown(book) == {"c1/1:/data": ["apples"], "c1/4:/data": ["apples"], "c2/2:/data": ["bananas"]}
    assert [result.total_bytes for result in book.answer.results] == [10_000] * 3


def test_topics_are_shown_on_their_owner_alone(world: World) -> None:
    book = asking(world)
    book.answered(holding("apples", "bananas", "__consumer_offsets"), holding("apples", "bananas"))
    assert shown(book) == {"c1/1:/data": ["apples"], "c2/2:/data": ["bananas"]}


def test_each_cluster_is_asked_for_its_own_topics(world: World) -> None:
    calls = asking(world, "bananas", "cherries").asked()
    wanted = [DescribeLogDirsRequest([]), DescribeLogDirsRequest([DescribableLogDirTopic("bananas", [0])])]
    assert [call.message for call in calls] == wanted


def test_a_broker_that_is_silent_or_refuses_is_named(world: World) -> None:
    book = asking(world)
    book.answered(Unreachable("c1", "down"), DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert [(result.log_dir, result.error_code) for result in book.answer.results] == [
        ("c1/1:?", ErrorCode.REQUEST_TIMED_OUT),
        ("c2/2:?", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]


def test_a_cluster_whose_brokers_nobody_knows_is_named(world: World) -> None:
    world.clusters["c1"].brokers.clear()
    book = asking(world)
    assert book.noted == [Refresh("c1", ())]
    book.answered(holding("bananas"))
    assert [(result.log_dir, result.error_code) for result in book.answer.results] == [
        ("c1/?", ErrorCode.REQUEST_TIMED_OUT),
        ("c2/2:/data", ErrorCode.NONE),
    ]


def test_a_node_of_its_own_address_answers_for_its_cluster(world: World) -> None:
    world.by_node_id = True
    world.session.asked_node = 102
    assert [call.cluster for call in asking(world).asked()] == ["c2"]
