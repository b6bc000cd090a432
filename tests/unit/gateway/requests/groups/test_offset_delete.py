"""Offsets are forgotten on the owner of each topic, unless members of the group subscribe to it, wherever they meet."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from services.gateway.requests.groups import offset_delete
from services.gateway.requests.plan import Coordinator, Forget, Outcome, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ConsumerGroupDescribeResponse
from services.gateway.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from services.gateway.wire.messages.consumer_group_describe import Member
from services.gateway.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from services.gateway.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.unit.gateway.requests.playbook import Playbook, World

EMPTY, SIMPLE, DEAD = ("Empty", "consumer"), ("Empty", ""), ("Dead", "")


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]})


def request_for(*topics: str) -> OffsetDeleteRequest:
    wanted = [OffsetDeleteRequestTopic(name=t, partitions=[OffsetDeleteRequestPartition(0)]) for t in topics]
    return OffsetDeleteRequest(group_id="g", topics=wanted)


def forgetting(world: World, *topics: str) -> Playbook:
    return Playbook(offset_delete.handle, request_for(*topics), 0, world.view())


def described(state: tuple[str, str], *subscriptions: bytes) -> DescribeGroupsResponse:
    members = [DescribedGroupMember(member_id="m", member_metadata=each) for each in subscriptions]
    group = DescribedGroup(group_id="g", group_state=state[0], protocol_type=state[1], members=members)
    return DescribeGroupsResponse(groups=[group])


def stable(*subscriptions: bytes, kind: str = "consumer") -> DescribeGroupsResponse:
    return described(("Stable", kind), *subscriptions)


def found(book: Playbook, *classic: Outcome, newer: ConsumerGroup | None = None) -> None:
    """Answers the question where the group is: on c1 and c2 as a classic group, or as a newer one on c1."""
    unknown = ConsumerGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id="g", group_state="")
    groups = (newer or unknown, unknown)
    book.answered(*classic, *(ConsumerGroupDescribeResponse(groups=[group]) for group in groups))


def subscribed_to(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def forgotten(*topics: str, error: int = ErrorCode.NONE) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=t, partitions=[OffsetDeleteResponsePartition(0, error)]) for t in topics]
    )


def refused(error: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


def errors_of(book: Playbook) -> dict[str, int]:
    assert book.answer.error_code == ErrorCode.NONE
    return {topic.name: topic.partitions[0].error_code for topic in book.answer.topics}


def test_offsets_are_forgotten_by_the_owner_of_each_topic(world: World) -> None:
    book = forgetting(world, "bananas", "apples", "cherries")
    found(book, described(EMPTY), described(SIMPLE))
    assert [(call.cluster, call.target, call.message) for call in book.asked()] == [
        ("c2", Coordinator("g"), request_for("bananas")),
        ("c1", Coordinator("g"), request_for("apples")),
    ]
    book.answered(forgotten("bananas"), forgotten("apples"))
    assert errors_of(book) == {
        "bananas": ErrorCode.NONE,
        "apples": ErrorCode.NONE,
        "cherries": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_foreign_topic_that_a_member_subscribes_to_is_kept(world: World) -> None:
    book = forgetting(world, "apples", "bananas")
    found(book, stable(subscribed_to("cherries"), subscribed_to("bananas")), described(SIMPLE))
    assert [call.cluster for call in book.asked()] == ["c1"]
    book.answered(forgotten("apples"))
    assert errors_of(book) == {"apples": ErrorCode.NONE, "bananas": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


@pytest.mark.parametrize("by", [{"subscribed_topic_names": ["bananas"]}, {"subscribed_topic_regex": "ban.*"}])
def test_a_foreign_topic_that_a_member_of_a_newer_group_subscribes_to_is_kept(world: World, by: dict[str, Any]) -> None:
    book = forgetting(world, "bananas")
    newer = ConsumerGroup(group_id="g", group_state="Reconciling", members=[Member(member_id="m", **by)])
    found(book, described(DEAD), described(SIMPLE), newer=newer)
    assert errors_of(book) == {"bananas": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_the_home_judges_its_own_topics_itself(world: World) -> None:
    book = forgetting(world, "apples", "bananas")
    found(book, stable(subscribed_to("apples")), described(SIMPLE))
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    book.answered(forgotten("apples", error=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), forgotten("bananas"))
    assert errors_of(book) == {"apples": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "bananas": ErrorCode.NONE}


def test_a_subscription_that_can_not_be_read_counts_for_every_topic(world: World) -> None:
    book = forgetting(world, "bananas")
    found(book, stable(b"?"), described(SIMPLE))
    assert errors_of(book) == {"bananas": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_members_that_are_no_consumers_keep_all_offsets(world: World) -> None:
    book = forgetting(world, "bananas")
    found(book, stable(b"", kind="connect"), described(SIMPLE))
    assert book.answer == refused(ErrorCode.NON_EMPTY_GROUP)


def test_subscriptions_are_waited_for_while_the_group_rebalances(world: World) -> None:
    book = forgetting(world, "bananas")
    found(book, described(("PreparingRebalance", "consumer"), b""), described(SIMPLE))
    assert book.answer == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_a_cluster_that_never_heard_of_the_group_has_nothing_to_forget(world: World) -> None:
    book = forgetting(world, "bananas")
    found(book, described(EMPTY), described(DEAD))
    book.answered(refused(ErrorCode.GROUP_ID_NOT_FOUND))
    assert errors_of(book) == {"bananas": ErrorCode.NONE}


def test_a_group_that_nobody_knows_is_not_found(world: World) -> None:
    book = forgetting(world, "apples", "bananas")
    found(book, described(DEAD), described(DEAD))
    book.answered(refused(ErrorCode.GROUP_ID_NOT_FOUND), refused(ErrorCode.GROUP_ID_NOT_FOUND))
    assert book.answer == refused(ErrorCode.GROUP_ID_NOT_FOUND)


def test_what_one_cluster_refuses_is_the_error_of_its_partitions(world: World) -> None:
    book = forgetting(world, "apples", "bananas")
    found(book, described(EMPTY), described(SIMPLE))
    book.answered(forgotten("apples"), refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert errors_of(book) == {"apples": ErrorCode.NONE, "bananas": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_a_cluster_that_goes_away_makes_the_client_ask_again(world: World) -> None:
    book = forgetting(world, "apples", "bananas")
    found(book, described(EMPTY), described(SIMPLE))
    book.answered(forgotten("apples"), Unreachable("c2", "gone"))
    assert book.answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert book.noted == [Forget("c2", Coordinator("g"))]


def test_nothing_is_forgotten_while_the_members_may_be_on_a_silent_cluster(world: World) -> None:
    book = forgetting(world, "apples")
    found(book, described(SIMPLE), Unreachable("c2", "down"))
    assert book.answer == refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_group_with_a_known_home_does_not_suffer_from_another_cluster(world: World) -> None:
    book = forgetting(world, "apples")
    found(book, described(EMPTY), Unreachable("c2", "down"))
    book.answered(forgotten("apples"))
    assert errors_of(book) == {"apples": ErrorCode.NONE}


def test_the_only_cluster_decides_by_itself() -> None:
    book = forgetting(World({"c1": ["apples"]}), "apples")
    book.answered(refused(ErrorCode.GROUP_ID_NOT_FOUND))
    assert book.answer == refused(ErrorCode.GROUP_ID_NOT_FOUND)
