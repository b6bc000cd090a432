"""Share groups of a stitched log: which cluster is asked, when, and by which offsets."""

from __future__ import annotations

import pytest

from mesh.routing import ExactName, ForwardingRule, Subject
from mesh.stitches import LogPart, Policy, StitchedLog
from services.gateway.requests.groups import share_acknowledge, share_fetch, share_group_offsets
from services.gateway.requests.groups.share_part_offsets import NO_STATE
from services.gateway.requests.groups.share_parts import AWAY_S, OLD_ROUND_MS, QUIET_S
from services.gateway.requests.plan import Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.batches import batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from services.gateway.wire.messages import alter_share_group_offsets as alter
from services.gateway.wire.messages import describe_share_group_offsets as describe
from services.gateway.wire.messages import share_acknowledge as acknowledge
from services.gateway.wire.messages import share_fetch as fetch
from tests.unit.gateway.requests.groups.test_share_group_tools import group_of
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.stitching import records_at, stitched_world

SHOWN = mesh_topic_id("mesh-id", "apples")
REAL = b"apples".ljust(16)
MEMBER = "m"


@pytest.fixture
def world() -> World:
    """See `stitching`: offsets up to 100 are on c1, and offset 100 is 10 on c2. The client sees one node."""
    return stitched_world()


def fetched(world: World, epoch: int, *given: tuple[int, int], wait_ms: int = 500) -> Playbook:
    """`given`: first and last offset of accepted records."""
    named = [fetch.AcknowledgementBatch(first, last, [1]) for first, last in given]
    message = ShareFetchRequest(
        group_id="g",
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        max_records=100,
        topics=[fetch.FetchTopic(SHOWN, [fetch.FetchPartition(0, named)])] if not epoch or given else [],
    )
    return Playbook(share_fetch.handle, message, 2, world.view())


def gave(*offsets: int, code: int = 0) -> ShareFetchResponse:
    acquired = [fetch.AcquiredRecords(offset, offset, 1) for offset in offsets]
    data = fetch.PartitionData(0, code, records=records_at(*offsets), acquired_records=acquired)
    return ShareFetchResponse(responses=[fetch.ShareFetchableTopicResponse(REAL, [data])])


def offsets_in(book: Playbook) -> tuple[list[int], list[int]]:
    """Those of the batches, and those of the acquired records."""
    [topic] = book.answer.responses
    [data] = topic.partitions
    assert topic.topic_id == SHOWN
    headers = [each.base_offset for each in batches(data.records, 0, len(data.records))]
    return headers, [each.first_offset for each in data.acquired_records]


def test_all_parts_are_read_at_once_and_the_client_sees_one_log(world: World) -> None:
    book = fetched(world, 0)
    asked = {call.cluster: call.message for call in book.asked()}
    assert list(asked) == ["c2", "c1"]
    assert [each.max_wait_ms for each in asked.values()] == [OLD_ROUND_MS] * 2  # type: ignore[union-attr]
    book.answered(gave(10, 12), gave(97, 99))
    assert offsets_in(book) == ([97, 99, 100, 102], [97, 99, 100, 102])


def test_records_of_nobody_between_the_parts_of_a_cluster_are_not_given(world: World) -> None:
    """c1 has two parts, and five records between them."""
    world.move("apples", "c1")
    book = fetched(world, 0)
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    book.answered(gave(99, 100, 104, 105), gave(10))
    assert offsets_in(book) == ([99, 100, 150], [99, 100, 150])


def test_an_acknowledgement_goes_to_the_cluster_of_each_record(world: World) -> None:
    fetched(world, 0).answered(gave(10, 11), gave(98, 99))
    types = [1, 2, 3, 1]
    named = acknowledge.AcknowledgePartition(0, [acknowledge.AcknowledgementBatch(98, 101, types)])
    message = ShareAcknowledgeRequest("g", MEMBER, 1, topics=[acknowledge.AcknowledgeTopic(SHOWN, [named])])
    book = Playbook(share_acknowledge.handle, message, 2, world.view())
    told = {call.cluster: call.message.topics[0].partitions[0] for call in book.asked()}  # type: ignore[union-attr]
    assert told["c1"].acknowledgement_batches == [acknowledge.AcknowledgementBatch(98, 99, [1, 2])]
    assert told["c2"].acknowledgement_batches == [acknowledge.AcknowledgementBatch(10, 11, [3, 1])]
    refused = acknowledge.PartitionData(0, ErrorCode.INVALID_RECORD_STATE)
    book.answered(settled(refused), settled(acknowledge.PartitionData(0)))
    [topic] = book.answer.responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_RECORD_STATE]


def settled(data: acknowledge.PartitionData) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(responses=[acknowledge.ShareAcknowledgeTopicResponse(REAL, [data])])


def test_an_old_part_without_records_is_asked_again_after_a_while(world: World) -> None:
    fetched(world, 0).answered(gave(10), gave())
    book = fetched(world, 1)
    assert [(call.cluster, call.message.max_wait_ms) for call in book.asked()] == [("c2", 500)]  # type: ignore[union-attr]
    book.answered(gave(11))
    world.now += QUIET_S
    book = fetched(world, 2)
    assert [call.cluster for call in book.asked()] == ["c2", "c1"]
    book.answered(gave(12), Unreachable("c1", "it stands still"))
    world.now += QUIET_S
    assert [call.cluster for call in fetched(world, 3).asked()] == ["c2"]
    world.now += AWAY_S
    assert [call.cluster for call in fetched(world, 4).asked()] == ["c2", "c1"]


def test_an_acknowledgement_does_not_wait_for_an_old_part(world: World) -> None:
    fetched(world, 0).answered(gave(10), gave(99))
    fetched(world, 1).answered(gave(11), gave())
    book = fetched(world, 2, (99, 100))
    assert {call.cluster for call in book.asked()} == {"c1", "c2"}


def test_the_trouble_of_an_old_part_is_none_of_the_client(world: World) -> None:
    book = fetched(world, 0)
    book.asked()
    book.answered(gave(10), gave(code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    [topic] = book.answer.responses
    assert topic.partitions[0].error_code == ErrorCode.NONE
    assert offsets_in(book) == ([100], [100])


def test_a_session_with_another_node_reads_the_old_part_by_an_id_of_its_own(world: World) -> None:
    """The client's session with the node of c1 may go on there, under the client's id."""
    world.by_node_id = True
    members = {call.cluster: call.message.member_id for call in fetched(world, 0).asked()}  # type: ignore[union-attr]
    assert members["c2"] == MEMBER
    assert members["c1"] != MEMBER


def test_a_group_that_a_rule_keeps_to_one_cluster_reads_the_part_there(world: World) -> None:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c2"))
    assert [call.cluster for call in fetched(world, 0).asked()] == ["c2"]


def test_a_fork_has_the_share_groups_of_its_own_records_with_their_offsets(world: World) -> None:
    past = LogPart("c1", "pears", 1, (0,), (0,), is_past=True)
    own = LogPart("c2", "apples", 1, (100,), (90,))
    world.memory.stitches = Policy([StitchedLog("apples", (past, own), "pears")], 1)
    book = fetched(world, 0)
    assert [call.cluster for call in book.asked()] == ["c2"]
    book.answered(gave(10))
    assert offsets_in(book) == ([100], [100])


# --- offsets of groups ---------------------------------------------------------------------------------------------


def described(world: World, *told: tuple[int, int]) -> tuple[int, int]:
    """Start and lag by those on c2 and c1."""
    world.memory.group_homes.put("g", "c1", world.now)
    wanted = [describe.DescribeShareGroupOffsetsRequestTopic("apples", [0])]
    group = describe.DescribeShareGroupOffsetsRequestGroup("g", wanted)
    book = Playbook(share_group_offsets.handle_describe, DescribeShareGroupOffsetsRequest([group]), 1, world.view())
    assert [call.cluster for call in book.asked()] == ["c2", "c1"]
    book.answered(*(_state(*each) for each in told))
    [topic] = book.answer.groups[0].topics
    [partition] = topic.partitions
    return partition.start_offset, partition.lag


def _state(start: int, lag: int) -> DescribeShareGroupOffsetsResponse:
    partition = describe.DescribeShareGroupOffsetsResponsePartition(0, start, lag=lag)
    topic = describe.DescribeShareGroupOffsetsResponseTopic("apples", REAL, [partition])
    group = describe.DescribeShareGroupOffsetsResponseGroup("g", [topic])
    return DescribeShareGroupOffsetsResponse(groups=[group])


@pytest.mark.parametrize(
    ("on_c2", "on_c1", "shown"),
    [
        pytest.param((10, 7), (40, 60), (40, 67), id="in the old part"),
        pytest.param((12, 5), (100, 0), (102, 5), id="in the present part"),
        pytest.param((12, 5), (90, 0), (102, 5), id="a cluster stores the start of a settled part late"),
        pytest.param((NO_STATE, NO_STATE), (100, 0), (100, 0), id="nothing of the present part yet"),
        pytest.param((12, 5), (NO_STATE, NO_STATE), (102, 5), id="nothing of the old part"),
        pytest.param((NO_STATE, NO_STATE), (NO_STATE, NO_STATE), (NO_STATE, NO_STATE), id="nothing at all"),
    ],
)
def test_the_start_of_a_group_is_that_in_the_first_part_with_records_to_settle(
    world: World, on_c2: tuple[int, int], on_c1: tuple[int, int], shown: tuple[int, int]
) -> None:
    assert described(world, on_c2, on_c1) == shown


@pytest.mark.parametrize(
    ("start", "on_c2", "on_c1"),
    [pytest.param(40, 10, 40, id="in the old part"), pytest.param(104, 14, 100, id="in the present part")],
)
def test_a_new_start_is_given_to_all_clusters(world: World, start: int, on_c2: int, on_c1: int) -> None:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c1", shadow_topics=True))
    wanted = [
        alter.AlterShareGroupOffsetsRequestTopic("apples", [alter.AlterShareGroupOffsetsRequestPartition(0, start)])
    ]
    book = Playbook(share_group_offsets.handle_alter, AlterShareGroupOffsetsRequest("g", wanted), 0, world.view())
    book.asked()
    book.answered(group_of(), group_of())
    told = {call.cluster: call.message.topics[0].partitions[0].start_offset for call in book.asked()}  # type: ignore[union-attr]
    assert told == {"c2": on_c2, "c1": on_c1}
    failed = alter.AlterShareGroupOffsetsResponsePartition(0, ErrorCode.INVALID_REQUEST, "no")
    done = alter.AlterShareGroupOffsetsResponsePartition(0)
    book.answered(*(_altered(each) for each in (failed, done)))
    [topic] = book.answer.responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_REQUEST]


def _altered(partition: alter.AlterShareGroupOffsetsResponsePartition) -> AlterShareGroupOffsetsResponse:
    topic = alter.AlterShareGroupOffsetsResponseTopic("apples", REAL, [partition])
    return AlterShareGroupOffsetsResponse(responses=[topic])
