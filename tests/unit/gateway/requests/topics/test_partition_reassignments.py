"""Replicas move between the brokers of their topic's owner, which have numbers of their own."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from services.gateway.requests.plan import Controller, Unreachable
from services.gateway.requests.topics import partition_reassignments
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from services.gateway.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.unit.gateway.requests.playbook import Playbook, World

Replicas = dict[tuple[str, int], list[int] | None]
VERSIONS = pytest.mark.parametrize("version", [0, 1])


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]}, by_node_id=True)


def moving(replicas: Replicas) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, ReassignableTopic] = {}
    for (topic, partition), brokers in replicas.items():
        topics.setdefault(topic, ReassignableTopic(topic)).partitions.append(ReassignablePartition(partition, brokers))
    return AlterPartitionReassignmentsRequest(30_000, True, list(topics.values()))


def moved(topic: str, *codes: int) -> AlterPartitionReassignmentsResponse:
    partitions = [ReassignablePartitionResponse(index, code, None) for index, code in enumerate(codes)]
    return AlterPartitionReassignmentsResponse(
        error_message=None, responses=[ReassignableTopicResponse(topic, partitions)]
    )


def told(book: Playbook) -> dict[tuple[str, int], tuple[int, str | None]]:
    return {
        (t.name, p.partition_index): (p.error_code, p.error_message)
        for t in book.answer.responses
        for p in t.partitions
    }


def on_the_move(*topics: str) -> ListPartitionReassignmentsResponse:
    partition = OngoingPartitionReassignment(0, [1, 2, 3], [3], [1])
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[OngoingTopicReassignment(topic, [partition]) for topic in topics]
    )


class TestMoving:
    @VERSIONS
    def test_the_owner_gets_its_own_ids(self, world: World, version: int) -> None:
        wanted: Replicas = {("apples", 0): [1000001, 1000003], ("apples", 1): None, ("bananas", 0): [2000002]}
        book = Playbook(partition_reassignments.handle_alter, moving(wanted), version, world.view())
        on_c1, on_c2 = book.asked()
        assert (on_c1.cluster, on_c1.target, on_c2.cluster) == ("c1", Controller(), "c2")
        assert on_c1.message == moving({("apples", 0): [1, 3], ("apples", 1): None})
        assert on_c2.message == moving({("bananas", 0): [2]})
        assert on_c1.timeout_s > 30
        book.answered(moved("apples", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), moved("bananas", 0))
        assert told(book) == {
            ("apples", 0): (0, None),
            ("apples", 1): (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
            ("bananas", 0): (0, None),
        }

    @pytest.mark.parametrize("broker", [2000002, 1, 102, 3000001])
    def test_a_broker_that_is_not_the_owners_is_refused_and_the_right_ones_are_named(
        self, world: World, broker: int
    ) -> None:
        wanted: Replicas = {("apples", 0): [1000001, broker], ("apples", 1): [1000001]}
        book = Playbook(partition_reassignments.handle_alter, moving(wanted), 1, world.view())
        [call] = book.asked()
        assert call.message == moving({("apples", 1): [1]})
        answer = moved("apples", 0, 0)
        answer.responses[0].partitions.pop(0)
        book.answered(answer)
        code, text = told(book)["apples", 0]
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert f"{broker} is no broker of cluster c1" in str(text)
        assert "1000001 (c1/1)" in str(text)
        assert told(book)["apples", 1] == (0, None)

    def test_topics_without_a_rule_and_owners_that_fail(self, world: World) -> None:
        wanted: Replicas = {("apples", 0): [1000001], ("bananas", 0): [2000002], ("cherries", 0): [1000001]}
        book = Playbook(partition_reassignments.handle_alter, moving(wanted), 1, world.view())
        refusal = AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="no"
        )
        book.answered(Unreachable("c1", "down"), refusal)
        assert {place: code for place, (code, _) in told(book).items()} == {
            ("apples", 0): ErrorCode.REQUEST_TIMED_OUT,
            ("bananas", 0): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ("cherries", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


class TestListing:
    def test_all_that_move_are_listed_by_the_numbers_of_real_brokers(self, world: World) -> None:
        book = Playbook(partition_reassignments.handle_list, ListPartitionReassignmentsRequest(), 0, world.view())
        assert [call.cluster for call in book.asked()] == ["c1", "c2"]
        book.answered(on_the_move("apples", "bananas", "__consumer_offsets"), on_the_move("bananas"))
        numbers = {t.name: t.partitions[0] for t in book.answer.topics}
        assert numbers == {
            "apples": OngoingPartitionReassignment(0, [1000001, 1000002, 1000003], [1000003], [1000001]),
            "bananas": OngoingPartitionReassignment(0, [2000001, 2000002, 2000003], [2000003], [2000001]),
        }
        assert (book.answer.error_code, book.answer.error_message) == (ErrorCode.NONE, None)

    def test_certain_topics_are_asked_of_their_owners(self, world: World) -> None:
        topics = [ListPartitionReassignmentsTopics(name, [0]) for name in ("bananas", "cherries")]
        request = ListPartitionReassignmentsRequest(1000, topics)
        book = Playbook(partition_reassignments.handle_list, request, 0, world.view())
        [call] = book.asked()
        assert (call.cluster, call.message) == ("c2", ListPartitionReassignmentsRequest(1000, topics[:1]))

    def test_a_cluster_that_is_missing_is_named_in_the_list_of_all(self, world: World) -> None:
        book = Playbook(partition_reassignments.handle_list, ListPartitionReassignmentsRequest(), 0, world.view())
        book.answered(on_the_move(), Unreachable("c2", "down"))
        assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "c2" in book.answer.error_message

    def test_topics_can_be_described_while_their_owner_is_away(self, world: World) -> None:
        topics = [ListPartitionReassignmentsTopics(name, [0]) for name in ("apples", "bananas")]
        request = ListPartitionReassignmentsRequest(1000, topics)
        book = Playbook(partition_reassignments.handle_list, request, 0, world.view())
        with capture_logs() as logs:
            book.answered(on_the_move("apples"), Unreachable("c2", "down"))
        assert (book.answer.error_code, [t.name for t in book.answer.topics]) == (ErrorCode.NONE, ["apples"])
        assert "c2" in logs[0]["reason"]

    def test_a_topic_that_nobody_has_does_not_move(self, world: World) -> None:
        request = ListPartitionReassignmentsRequest(1000, [ListPartitionReassignmentsTopics("cherries", [0])])
        answer = Playbook(partition_reassignments.handle_list, request, 0, world.view()).answer
        assert answer == ListPartitionReassignmentsResponse(error_message=None)
