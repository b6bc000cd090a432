"""The controllers of the cluster whose node is asked, by numbers that tell the cluster."""

from services.gateway.requests.clusters import describe_quorum
from services.gateway.requests.plan import Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    RequestedPartition,
    RequestedTopic,
    TopicData,
)
from tests.unit.gateway.requests.playbook import Playbook, World

QUORUM = "__cluster_metadata"
QUESTION = DescribeQuorumRequest([RequestedTopic(QUORUM, [RequestedPartition(0)])])


def asking(*clusters: str, node: int | None = None, by_node_id: bool = True) -> Playbook:
    world = World({cluster: [] for cluster in clusters}, by_node_id=by_node_id)
    world.session.asked_node = node
    return Playbook(describe_quorum.handle, QUESTION, 2, world.view())


def test_the_node_that_is_asked_tells_the_cluster_and_the_numbers_do_so_in_the_answer() -> None:
    book = asking("c1", "c2", node=102)
    [call] = book.asked()
    assert (call.cluster, call.message) == ("c2", QUESTION)
    partition = PartitionData(
        leader_id=3, current_voters=[ReplicaState(3), ReplicaState(4)], observers=[ReplicaState(1)]
    )
    book.answered(DescribeQuorumResponse(topics=[TopicData(QUORUM, [partition])], nodes=[Node(3), Node(4)]))
    [told] = book.answer.topics[0].partitions
    assert told.leader_id == 2000003
    assert [each.replica_id for each in (*told.current_voters, *told.observers)] == [2000003, 2000004, 2000001]
    assert [node.node_id for node in book.answer.nodes] == [2000003, 2000004]


def test_a_quorum_without_a_leader_has_none_here() -> None:
    book = asking("c1")
    book.answered(DescribeQuorumResponse(topics=[TopicData(QUORUM, [PartitionData(leader_id=-1)])]))
    assert book.answer.topics[0].partitions[0].leader_id == -1


def test_where_nothing_tells_which_cluster_is_meant_the_answer_says_who_could_be_asked() -> None:
    for book in (asking("c1", "c2"), asking("c1", "c2", node=101, by_node_id=False)):
        assert book.answer.error_code == ErrorCode.INVALID_REQUEST
        assert "c1" in book.answer.error_message
        assert "c2" in book.answer.error_message
    assert "101 = c1, 102 = c2" in asking("c1", "c2").answer.error_message


def test_a_cluster_that_does_not_answer_is_named() -> None:
    book = asking("c1")
    book.answered(Unreachable("c1", "down"))
    assert (book.answer.error_code, "cluster c1" in book.answer.error_message) == (ErrorCode.REQUEST_TIMED_OUT, True)
