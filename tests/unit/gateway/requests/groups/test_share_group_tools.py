"""Tools for share groups over several clusters: descriptions, and offsets with the owners of their topics."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.routing import ExactName, ForwardingRule, Subject
from services.gateway.requests.groups import describe_groups, share_group_offsets
from services.gateway.requests.plan import Coordinator, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from services.gateway.wire.messages import alter_share_group_offsets as alter
from services.gateway.wire.messages import delete_share_group_offsets as delete
from services.gateway.wire.messages import describe_share_group_offsets as offsets
from services.gateway.wire.messages import share_group_describe as described
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import Playbook, World

BOTH = ["apples", "bananas"]


@pytest.fixture
def world() -> World:
    """The group lives on c1."""
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.memory.group_homes.put("g", "c1", world.now)
    return world


def at_home_alone(world: World) -> World:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c1"))
    return world


def real_id(topic: str) -> bytes:
    return topic.encode().ljust(16)


def shown_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


def group_of(*members: described.Member, state: str = "Stable") -> ShareGroupDescribeResponse:
    """A group; without members and state, it does not exist."""
    group = described.DescribedGroup(group_id="g", group_state=state if members else "Dead", group_epoch=4)
    group.error_code = ErrorCode.NONE if members else ErrorCode.GROUP_ID_NOT_FOUND
    group.members = list(members)
    return ShareGroupDescribeResponse(groups=[group])


def member(name: str, topics: list[str], *given: str) -> described.Member:
    assignment = described.Assignment([described.TopicPartitions(real_id(each), each, [0]) for each in given])
    return described.Member(member_id=name, subscribed_topic_names=topics, assignment=assignment)


def describing(world: World) -> Playbook:
    return Playbook(describe_groups.handle_share_groups, ShareGroupDescribeRequest(["g"]), 1, world.view())


def shown(book: Playbook) -> dict[str, list[bytes]]:
    [group] = book.answer.groups
    return {each.member_id: [t.topic_id for t in each.assignment.topic_partitions] for each in group.members}


def test_a_member_is_shown_with_its_partitions_on_all_clusters(world: World) -> None:
    book = describing(world)
    at_home = group_of(member("m", BOTH, "apples"), member("n", ["apples"]))
    book.answered(at_home, group_of(member("m", ["bananas"], "bananas")))
    assert shown(book) == {"m": [shown_id("apples"), shown_id("bananas")], "n": []}
    [group] = book.answer.groups
    assert (group.group_state, group.group_epoch, group.members[0].subscribed_topic_names) == ("Stable", 4, BOTH)


def test_partitions_that_a_topic_left_behind_are_not_shown(world: World) -> None:
    world.move("apples", "c2")
    book = describing(world)
    book.answered(group_of(member("m", BOTH, "apples")), group_of(member("m", BOTH, "apples", "bananas")))
    assert shown(book) == {"m": [shown_id("apples"), shown_id("bananas")]}


def test_a_group_is_not_empty_as_long_as_one_cluster_has_members(world: World) -> None:
    book = describing(world)
    empty = described.DescribedGroup(group_id="g", group_state="Empty")
    book.answered(ShareGroupDescribeResponse(groups=[empty]), group_of(member("m", ["bananas"], "bananas")))
    [group] = book.answer.groups
    assert (group.group_state, shown(book)) == ("Stable", {"m": [shown_id("bananas")]})


def test_a_group_is_described_without_a_cluster_that_is_away(world: World) -> None:
    book = describing(world)
    book.answered(group_of(member("m", BOTH, "apples")), Unreachable("c2", "down"))
    assert shown(book) == {"m": [shown_id("apples")]}


# --- offsets -------------------------------------------------------------------------------------------------------


def playing(handle: Any, message: Struct, world: World) -> Playbook:
    return Playbook(handle, message, 0, world.view())


def asking_for(topics: list[str] | None) -> DescribeShareGroupOffsetsRequest:
    named = None if topics is None else [offsets.DescribeShareGroupOffsetsRequestTopic(topic, [0]) for topic in topics]
    return DescribeShareGroupOffsetsRequest([offsets.DescribeShareGroupOffsetsRequestGroup("g", named)])


def starts_at(offset: int, *topics: str, code: ErrorCode = ErrorCode.NONE) -> DescribeShareGroupOffsetsResponse:
    found = [
        offsets.DescribeShareGroupOffsetsResponseTopic(
            topic, real_id(topic), [offsets.DescribeShareGroupOffsetsResponsePartition(0, offset)]
        )
        for topic in topics
    ]
    return DescribeShareGroupOffsetsResponse(groups=[offsets.DescribeShareGroupOffsetsResponseGroup("g", found, code)])


def starts_in(book: Playbook) -> dict[bytes, int]:
    [group] = book.answer.groups
    assert group.error_code == ErrorCode.NONE
    return {topic.topic_id: topic.partitions[0].start_offset for topic in group.topics}


@pytest.mark.parametrize("topics", [BOTH, None])
def test_each_owner_tells_the_offsets_of_its_topics(world: World, topics: list[str] | None) -> None:
    book = playing(share_group_offsets.handle_describe, asking_for(topics), world)
    assert [(call.cluster, call.target) for call in book.asked()] == [
        ("c1", Coordinator("g")),
        ("c2", Coordinator("g")),
    ]
    book.answered(starts_at(3, "apples", "bananas"), starts_at(5, "bananas"))
    assert starts_in(book) == {shown_id("apples"): 3, shown_id("bananas"): 5}


def test_a_topic_without_members_so_far_has_no_offsets(world: World) -> None:
    book = playing(share_group_offsets.handle_describe, asking_for(["apples", "bananas", "strange"]), world)
    book.answered(starts_at(3, "apples"), starts_at(0, code=ErrorCode.GROUP_ID_NOT_FOUND))
    assert starts_in(book) == {shown_id("apples"): 3, shown_id("bananas"): -1, shown_id("strange"): -1}


def test_a_group_that_no_cluster_knows_is_not_found(world: World) -> None:
    book = playing(share_group_offsets.handle_describe, asking_for(None), world)
    book.answered(*[starts_at(0, code=ErrorCode.GROUP_ID_NOT_FOUND)] * 2)
    assert [group.error_code for group in book.answer.groups] == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_offsets_are_to_be_asked_for_again_while_their_cluster_is_away(world: World) -> None:
    book = playing(share_group_offsets.handle_describe, asking_for(BOTH), world)
    book.answered(starts_at(3, "apples"), Unreachable("c2", "down"))
    [group] = book.answer.groups
    assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "cluster c2: down" in group.error_message


def altering(*topics: str) -> AlterShareGroupOffsetsRequest:
    partition = alter.AlterShareGroupOffsetsRequestPartition(0, 7)
    return AlterShareGroupOffsetsRequest(
        "g", [alter.AlterShareGroupOffsetsRequestTopic(topic, [partition]) for topic in topics]
    )


def altered(*topics: str) -> AlterShareGroupOffsetsResponse:
    partition = alter.AlterShareGroupOffsetsResponsePartition(0)
    found = [alter.AlterShareGroupOffsetsResponseTopic(topic, real_id(topic), [partition]) for topic in topics]
    return AlterShareGroupOffsetsResponse(responses=found)


def test_each_owner_alters_the_offsets_of_its_topics_of_an_empty_group(world: World) -> None:
    book = playing(share_group_offsets.handle_alter, altering("apples", "bananas", "strange"), world)
    book.answered(group_of(), group_of())
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    refusal = AlterShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="No.")
    book.answered(altered("apples"), refusal)
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in book.answer.responses}
    assert codes == {
        shown_id("apples"): ErrorCode.NONE,
        shown_id("bananas"): ErrorCode.GROUP_ID_NOT_FOUND,
        shown_id("strange"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_each_owner_deletes_the_offsets_of_its_topics_of_an_empty_group(world: World) -> None:
    named = [delete.DeleteShareGroupOffsetsRequestTopic(topic) for topic in BOTH]
    book = playing(share_group_offsets.handle_delete, DeleteShareGroupOffsetsRequest("g", named), world)
    book.answered(group_of(), group_of())
    gone = [delete.DeleteShareGroupOffsetsResponseTopic("apples", real_id("apples"))]
    book.answered(DeleteShareGroupOffsetsResponse(responses=gone), Unreachable("c2", "down"))
    codes = {topic.topic_id: topic.error_code for topic in book.answer.responses}
    assert codes == {shown_id("apples"): ErrorCode.NONE, shown_id("bananas"): ErrorCode.COORDINATOR_NOT_AVAILABLE}


CHANGES = [
    (share_group_offsets.handle_alter, altering("apples")),
    (
        share_group_offsets.handle_delete,
        DeleteShareGroupOffsetsRequest("g", [delete.DeleteShareGroupOffsetsRequestTopic("apples")]),
    ),
]


@pytest.mark.parametrize(("handle", "message"), CHANGES)
def test_nothing_changes_while_the_group_has_members_on_any_cluster(world: World, handle: Any, message: Any) -> None:
    book = playing(handle, message, world)
    book.answered(group_of(), group_of(member("m", ["bananas"])))
    assert book.answer.error_code == ErrorCode.NON_EMPTY_GROUP
    assert "the group has members on cluster c2" in book.answer.error_message


@pytest.mark.parametrize(("handle", "message"), CHANGES)
def test_nothing_changes_while_a_cluster_does_not_tell_of_members(world: World, handle: Any, message: Any) -> None:
    book = playing(handle, message, world)
    book.answered(group_of(), Unreachable("c2", "down"))
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("handle", "message"), CHANGES)
def test_an_owner_that_is_away_is_to_be_asked_again(world: World, handle: Any, message: Any) -> None:
    book = playing(handle, message, at_home_alone(world))
    book.all_unreachable()
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_home_that_a_rule_names_keeps_all_offsets_of_its_group(world: World) -> None:
    book = playing(share_group_offsets.handle_describe, asking_for(BOTH), at_home_alone(world))
    assert [call.cluster for call in book.asked()] == ["c1"]
    book.answered(starts_at(3, "apples", "bananas"))
    assert starts_in(book) == {shown_id("apples"): 3, shown_id("bananas"): 3}
    book = playing(share_group_offsets.handle_alter, altering("apples"), world)
    assert [call.cluster for call in book.asked()] == ["c1"]
    book.answered(altered("apples"))
    assert [topic.topic_id for topic in book.answer.responses] == [shown_id("apples")]
