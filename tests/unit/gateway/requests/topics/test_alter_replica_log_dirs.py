"""Replicas move to another directory of their broker, which the directory's name tells."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from services.gateway.requests.plan import Broker, Unreachable
from services.gateway.requests.topics import alter_replica_log_dirs
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]}, by_node_id=True)


def moving(**directories: str) -> AlterReplicaLogDirsRequest:
    """Partition 0 of each topic."""
    return AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [0])]) for topic, path in directories.items()]
    )


def moved(topic: str, code: int = 0) -> AlterReplicaLogDirsResponse:
    result = AlterReplicaLogDirTopicResult(topic, [AlterReplicaLogDirPartitionResult(0, code)])
    return AlterReplicaLogDirsResponse(results=[result])


def codes(book: Playbook) -> dict[str, int]:
    return {result.topic_name: p.error_code for result in book.answer.results for p in result.partitions}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_directory_tells_the_broker(world: World, version: int) -> None:
    request = moving(apples="c1/4:/data/two", bananas="c2/2:C:\\data")
    book = Playbook(alter_replica_log_dirs.handle, request, version, world.view())
    on_c1, on_c2 = book.asked()
    assert (on_c1.cluster, on_c1.target, on_c1.message) == ("c1", Broker(4), moving(apples="/data/two"))
    assert (on_c2.cluster, on_c2.target, on_c2.message) == ("c2", Broker(2), moving(bananas="C:\\data"))
    book.answered(moved("apples"), moved("bananas", ErrorCode.LOG_DIR_NOT_FOUND))
    assert codes(book) == {"apples": ErrorCode.NONE, "bananas": ErrorCode.LOG_DIR_NOT_FOUND}


@pytest.mark.parametrize(
    ("topic", "path", "code", "reason"),
    [
        ("apples", "/data", ErrorCode.LOG_DIR_NOT_FOUND, "cluster/broker:path"),
        ("apples", "c9/1:/data", ErrorCode.LOG_DIR_NOT_FOUND, "cluster/broker:path"),
        ("apples", "c2/2:/data", ErrorCode.REPLICA_NOT_AVAILABLE, "lives on cluster c1"),
        ("cherries", "c2/2:/data", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no forwarding rule"),
    ],
)
def test_what_has_no_place_is_refused_and_the_log_says_why(
    world: World, topic: str, path: str, code: int, reason: str
) -> None:
    with capture_logs() as logs:
        book = Playbook(alter_replica_log_dirs.handle, moving(**{topic: path}), 2, world.view())
    assert codes(book) == {topic: code}
    assert reason in logs[0]["reason"]


def test_a_broker_that_does_not_answer_fails_its_partitions_alone(world: World) -> None:
    request = moving(apples="c1/4:/data", bananas="c2/2:/data")
    book = Playbook(alter_replica_log_dirs.handle, request, 2, world.view())
    book.answered(Unreachable("c1", "down"), moved("bananas"))
    assert codes(book) == {"apples": ErrorCode.REQUEST_TIMED_OUT, "bananas": ErrorCode.NONE}
