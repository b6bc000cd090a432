"""Groups over several clusters: one home for the members, each topic's offsets with its owner."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest

from mesh.routing import ExactName, ForwardingRule, Subject
from services.gateway.requests.groups import describe_groups, group_member, list_groups, offset_commit, offset_fetch
from services.gateway.requests.groups.group_home import PATIENCE_S, PAUSE_S, SOON_S
from services.gateway.requests.groups.group_kinds import CONSUMER, SHARE, STREAMS, GroupKind
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.memory import GROUP_HOME_SECONDS
from services.gateway.requests.mesh import find_coordinator
from services.gateway.requests.plan import Coordinator, Forget, Gather, RawResponse, Unreachable, Verbatim
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
)
from services.gateway.wire.messages.find_coordinator import FindCoordinatorRequest
from services.gateway.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from services.gateway.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from services.gateway.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from services.gateway.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from services.gateway.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.unit.gateway.requests.lookups import DEAD, EMPTY, MEMBERS, SIMPLE, described, look_up
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]})


def subscribed_to(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(*topics: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscribed_to(*topics))],
    )


def commit(*topics: str, generation: int = 3, member: str = "m") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")],
            )
            for topic in topics
        ],
    )


def committed(**errors: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic, partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=error)]
            )
            for topic, error in errors.items()
        ]
    )


def errors_of(answer: OffsetCommitResponse) -> dict[str, int]:
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


def at_home(world: World, cluster: str) -> World:
    world.memory.group_homes.put("g", cluster, 1000.0)
    return world


def refused(error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(error_code=error, group_id="g")


@pytest.mark.parametrize(
    "first",
    [
        refused(ErrorCode.NOT_COORDINATOR),
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        Unreachable("c2", "connection refused", never_sent=True),
    ],
)
def test_a_group_whose_coordinator_has_moved_is_asked_for_again(
    world: World, first: DescribedGroup | Unreachable
) -> None:
    book = Playbook(group_member.handle_join_group, join("apples"), 5, world.view())
    look_up(book, {("c2", ApiKey.DESCRIBE_GROUPS): first})
    assert Forget("c2", Coordinator("g")) in book.noted
    [again] = book.asked()
    assert again.cluster == "c2"
    look_up(book, c2=MEMBERS)
    [call] = book.asked()
    assert call.cluster == "c2"


@pytest.mark.parametrize("answer", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_no_second_group_begins_while_a_coordinator_cannot_tell_yet(world: World, answer: ErrorCode) -> None:
    mesh = world.view()
    book = Playbook(group_member.handle_join_group, join("apples"), 5, mesh)
    loading = {("c2", int(ApiKey.DESCRIBE_GROUPS)): refused(answer)}
    look_up(book, loading)
    if answer is ErrorCode.NOT_COORDINATOR:
        look_up(book, loading)
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert mesh.memory.group_homes.get("g", mesh.now) is None


@pytest.mark.parametrize(
    ("c1", "c2", "topics", "home"),
    [
        (MEMBERS, DEAD, ["bananas"], "c1"),
        (DEAD, MEMBERS, ["apples"], "c2"),
        (EMPTY, MEMBERS, ["apples"], "c2"),
        (DEAD, EMPTY, ["apples"], "c2"),
        (SIMPLE, EMPTY, ["apples"], "c2"),
        (DEAD, DEAD, ["bananas"], "c2"),
        (DEAD, SIMPLE, ["apples"], "c1"),
        (DEAD, DEAD, ["apples", "bananas"], "c1"),
        (DEAD, DEAD, ["nowhere"], "c1"),
    ],
)
def test_a_group_lives_where_it_lived_else_with_the_only_owner_of_its_topics_else_at_home(
    world: World, c1: tuple[str, str], c2: tuple[str, str], topics: list[str], home: str
) -> None:
    book = Playbook(group_member.handle_join_group, join(*topics), 5, world.view())
    look_up(book, c1=c1, c2=c2)
    [call] = book.asked()
    assert (call.cluster, call.target) == (home, Coordinator("g"))


def test_a_join_goes_and_comes_byte_for_byte(world: World) -> None:
    book = Playbook(group_member.handle_join_group, join("apples"), 5, at_home(world, "c1").view())
    [call] = book.asked()
    assert isinstance(call.message, Verbatim)
    assert call.timeout_s > 60
    response = JoinGroupResponse(generation_id=1, protocol_name="range", leader="m", member_id="m")
    raw = RawResponse(memoryview(encode(response, 5)), 0, 5)
    book.answered(raw)
    assert book.answer is raw


def heartbeat_of(world: World) -> Playbook:
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return Playbook(group_member.handle_heartbeat, message, 3, world.view())


def test_where_members_are_is_remembered_so_that_heartbeats_ask_nobody_else(world: World) -> None:
    book = Playbook(group_member.handle_join_group, join("bananas"), 5, world.view())
    look_up(book, c1=MEMBERS)
    [call] = heartbeat_of(world).asked()
    assert (call.cluster, call.key) == ("c1", ApiKey.HEARTBEAT)


def test_a_group_that_has_just_begun_is_looked_up_again_until_its_members_are_seen(world: World) -> None:
    """Another gateway may have begun it elsewhere at the same time."""
    book = Playbook(group_member.handle_join_group, join("bananas"), 5, world.view())
    look_up(book)
    assert [call.cluster for call in book.asked()] == ["c2"]
    again = heartbeat_of(world)
    look_up(again, c1=MEMBERS, c2=MEMBERS)
    assert [call.cluster for call in again.asked()] == ["c1"]


def heartbeat_behind_an_old_home(world: World) -> Playbook:
    """The gateway knows that the group was at home on c1, and asks whether it still is."""
    at_home(world, "c1").now += GROUP_HOME_SECONDS + 1
    return Playbook(group_member.handle_heartbeat, HeartbeatRequest(group_id="g"), 3, world.view())


def test_a_cluster_that_does_not_answer_holds_up_no_member_of_a_group_elsewhere(world: World) -> None:
    book = heartbeat_behind_an_old_home(world)
    assert book.gathers().wait_s == SOON_S
    look_up(book, silent="c2", c1=MEMBERS)
    [call] = book.asked()
    assert (call.cluster, call.key) == ("c1", ApiKey.HEARTBEAT)
    assert world.memory.group_homes.get("g", world.now) == "c1"


def test_a_silent_cluster_is_waited_for_if_the_group_does_not_live_at_its_last_home(world: World) -> None:
    book = heartbeat_behind_an_old_home(world)
    look_up(book, silent="c2", c1=DEAD)
    assert {call.cluster for call in book.asked()} == {"c1", "c2"}
    look_up(book, c2=MEMBERS)
    [call] = book.asked()
    assert (call.cluster, call.key) == ("c2", ApiKey.HEARTBEAT)


def test_a_group_leaves_a_home_that_has_failed_over(world: World) -> None:
    at_home(world, "c1").memory.seams.give_up("c1", world.now)
    book = Playbook(group_member.handle_heartbeat, HeartbeatRequest(group_id="g"), 3, world.view())
    look_up(book, {("c1", ApiKey.DESCRIBE_GROUPS): Unreachable("c1", "down")}, c2=MEMBERS)
    [call] = book.asked()
    assert (call.cluster, call.key) == ("c2", ApiKey.HEARTBEAT)


def test_two_gateways_that_remember_two_homes_agree_again(world: World) -> None:
    book = heartbeat_behind_an_old_home(world)
    look_up(book, {("c2", ApiKey.DESCRIBE_GROUPS): described(MEMBERS, 3).groups[0]}, c1=MEMBERS)
    [call] = book.asked()
    assert (call.cluster, call.key) == ("c2", ApiKey.HEARTBEAT)


@pytest.mark.parametrize("kind", [CONSUMER, SHARE, STREAMS], ids=lambda kind: kind.name)
def test_groups_of_the_newer_kinds_are_seen_too(world: World, kind: GroupKind[Any]) -> None:
    book = Playbook(group_member.handle_join_group, join("apples"), 5, world.view())
    member = kind.description(group_id="g", group_state="Stable")
    member.members = [SimpleNamespace(subscribed_topic_names=["apples"])]
    look_up(book, {("c2", kind.api_key): member})
    assert [call.cluster for call in book.asked()] == ["c2"]


def test_a_rule_about_the_group_comes_first_and_asks_nobody(world: World) -> None:
    rule = ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c2")
    world.add_rule(rule)
    [call] = Playbook(group_member.handle_join_group, join("apples"), 5, at_home(world, "c1").view()).asked()
    assert (call.cluster, call.key) == ("c2", ApiKey.JOIN_GROUP)


def test_a_home_that_was_guessed_without_all_clusters_is_not_remembered(world: World) -> None:
    mesh = world.view()
    book = Playbook(group_member.handle_join_group, join("apples"), 5, mesh)
    look_up(book, {("c2", ApiKey.DESCRIBE_GROUPS): Unreachable("c2", "down")})
    assert [call.cluster for call in book.asked()] == ["c1"]
    assert mesh.memory.group_homes.get("g", mesh.now) is None


def test_a_mesh_of_one_cluster_asks_nobody_where_a_group_lives() -> None:
    world = World({"c1": ["apples"]})
    book = Playbook(group_member.handle_join_group, join("apples"), 5, world.view())
    [call] = book.asked()
    assert isinstance(call.message, Verbatim)


def test_an_unreachable_home_sends_the_client_to_find_its_coordinator_again(world: World) -> None:
    book = Playbook(group_member.handle_join_group, join("apples"), 5, at_home(world, "c1").view())
    book.all_unreachable()
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(book.noted) == 1


def test_a_moved_coordinator_is_found_again_at_the_next_call(world: World) -> None:
    book = Playbook(group_member.handle_heartbeat, HeartbeatRequest(group_id="g"), 3, at_home(world, "c1").view())
    moved = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    book.answered(RawResponse(memoryview(encode(moved, 3)), 0, 3))
    assert book.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert len(book.noted) == 1


def test_a_members_commit_goes_home_first_and_then_to_foreign_owners_as_simple_commits(world: World) -> None:
    book = Playbook(offset_commit.handle, commit("bananas", "apples"), 8, at_home(world, "c1").view())
    [first] = book.asked()
    assert (first.cluster, first.version) == ("c1", 8)
    assert isinstance(first.message, OffsetCommitRequest)
    assert first.message.member_id == "m"
    book.answered(committed(apples=0))
    [second] = book.asked()
    assert (second.cluster, second.version) == ("c2", offset_commit.FOREIGN_VERSION)
    assert isinstance(second.message, OffsetCommitRequest)
    assert (second.message.member_id, second.message.generation_id_or_member_epoch) == ("", -1)
    assert second.message.retention_time_ms == offset_commit.RETENTION_MS
    book.answered(committed(bananas=0))
    assert [topic.name for topic in book.answer.topics] == ["bananas", "apples"]
    assert errors_of(book.answer) == {"bananas": 0, "apples": 0}


@pytest.mark.parametrize("fence", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_what_fences_a_member_at_home_bars_its_foreign_commits(world: World, fence: ErrorCode) -> None:
    book = Playbook(offset_commit.handle, commit("apples", "bananas"), 8, at_home(world, "c1").view())
    book.answered(committed(apples=fence))
    assert errors_of(book.answer) == {"apples": fence, "bananas": fence}


def test_a_wholly_foreign_commit_is_checked_by_a_heartbeat_at_home(world: World) -> None:
    book = Playbook(offset_commit.handle, commit("bananas"), 8, at_home(world, "c1").view())
    [call] = book.asked()
    assert isinstance(call.message, HeartbeatRequest)
    assert (call.cluster, call.message.member_id, call.message.generation_id) == ("c1", "m", 3)
    book.answered(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert errors_of(book.answer) == {"bananas": ErrorCode.ILLEGAL_GENERATION}


def test_a_member_in_a_rebalance_may_still_commit(world: World) -> None:
    book = Playbook(offset_commit.handle, commit("bananas"), 8, at_home(world, "c1").view())
    book.answered(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    book.answered(committed(bananas=0))
    assert errors_of(book.answer) == {"bananas": 0}


def test_a_partition_error_at_home_does_not_bar_the_rest(world: World) -> None:
    book = Playbook(offset_commit.handle, commit("apples", "bananas"), 8, at_home(world, "c1").view())
    book.answered(committed(apples=ErrorCode.OFFSET_METADATA_TOO_LARGE))
    book.answered(committed(bananas=0))
    assert errors_of(book.answer) == {"apples": ErrorCode.OFFSET_METADATA_TOO_LARGE, "bananas": 0}


def test_a_member_never_hears_that_it_is_unknown_where_it_never_was(world: World) -> None:
    book = Playbook(offset_commit.handle, commit("apples", "bananas"), 8, at_home(world, "c1").view())
    book.answered(committed(apples=0))
    book.answered(committed(bananas=ErrorCode.UNKNOWN_MEMBER_ID))
    assert errors_of(book.answer) == {"apples": 0, "bananas": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_one_owner_gone_fails_its_partitions_only(world: World) -> None:
    book = Playbook(offset_commit.handle, commit("apples", "bananas"), 8, at_home(world, "c1").view())
    book.answered(committed(apples=0))
    book.all_unreachable()
    assert errors_of(book.answer) == {"apples": 0, "bananas": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_a_commit_without_a_member_goes_to_the_owners_as_it_is(world: World) -> None:
    request = commit("apples", "bananas", "nowhere", generation=-1, member="")
    book = Playbook(offset_commit.handle, request, 8, world.view())
    assert [(call.cluster, call.version) for call in book.asked()] == [("c1", 8), ("c2", 8)]
    book.answered(committed(apples=0), committed(bananas=0))
    assert errors_of(book.answer) == {
        "apples": 0,
        "bananas": 0,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def single(*topics: str) -> OffsetFetchResponse:
    part = OffsetFetchResponsePartition(partition_index=0, committed_offset=7, metadata="")
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name=t, partitions=[part]) for t in topics])


def grouped(*topics: str, error: int = 0) -> OffsetFetchResponse:
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="")
    answered = [OffsetFetchResponseTopics(name=t, partitions=[part]) for t in topics]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=error, topics=answered)])


def test_offsets_are_fetched_from_the_owner_of_each_topic(world: World) -> None:
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name=t, partition_indexes=[0]) for t in ("apples", "bananas", "nowhere")],
    )
    book = Playbook(offset_fetch.handle, request, 5, world.view())
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    book.answered(single("apples"), single("bananas"))
    found = {topic.name: topic.partitions[0].committed_offset for topic in book.answer.topics}
    assert found == {"apples": 7, "bananas": 7, "nowhere": -1}


def test_all_offsets_of_a_group_leave_out_what_a_former_owner_kept(world: World) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    book = Playbook(offset_fetch.handle, request, 8, world.view())
    book.answered(grouped("apples", "bananas"), grouped("bananas"))
    assert [topic.name for topic in book.answer.groups[0].topics] == ["apples", "bananas"]


@pytest.mark.parametrize("version", [1, 5, 8])
def test_an_offset_that_is_unknown_for_now_never_looks_like_one_never_committed(world: World, version: int) -> None:
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="bananas", partition_indexes=[0])],
    )
    if version >= 8:
        wanted = [OffsetFetchRequestTopics(name="bananas", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
    book = Playbook(offset_fetch.handle, request, version, world.view())
    book.all_unreachable()
    answer = book.answer
    if version >= 8:
        code = answer.groups[0].error_code
    elif version >= 2:
        code = answer.error_code
    else:
        code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_coordinator_that_has_moved_is_looked_for_and_asked_again(world: World) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    book = Playbook(offset_fetch.handle, request, 8, world.view())
    book.answered(grouped("apples"), grouped(error=ErrorCode.NOT_COORDINATOR))
    assert [call.cluster for call in book.asked()] == ["c2"]
    assert book.noted == [Forget("c2", Coordinator("g"))]
    book.answered(grouped("bananas"))
    assert [topic.name for topic in book.answer.groups[0].topics] == ["apples", "bananas"]


def test_a_coordinator_that_nobody_is_yet_counts_as_one_that_loads(world: World) -> None:
    """Clients find the gateway for every group: NOT_COORDINATOR would send them nowhere, and librdkafka tells its
    application."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    book = Playbook(offset_fetch.handle, request, 8, world.view())
    book.answered(grouped("apples"), grouped(error=ErrorCode.NOT_COORDINATOR))
    book.answered(grouped(error=ErrorCode.NOT_COORDINATOR))
    [group] = book.answer.groups
    assert (group.error_code, group.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


@pytest.mark.parametrize("version", [0, 3, 4])
def test_the_gateway_is_the_coordinator_of_every_group(world: World, version: int) -> None:
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = Playbook(find_coordinator.handle, request, version, world.view()).answer
    found = [answer] if version < 4 else answer.coordinators
    assert [(c.node_id, c.host, c.port, c.error_code) for c in found] == [(101, "mesh", 19092, 0)] * len(found)


def test_an_unknown_kind_of_coordinator_is_refused_with_a_sentence(world: World) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
    [found] = Playbook(find_coordinator.handle, request, 6, world.view()).answer.coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert "key type 2" in str(found.error_message)


def test_a_group_is_described_as_its_home_sees_it(world: World) -> None:
    book = Playbook(describe_groups.handle, DescribeGroupsRequest(groups=["g"]), 5, world.view())
    book.answered(described(SIMPLE), described(MEMBERS, members=2))
    [group] = book.answer.groups
    assert (group.group_state, len(group.members)) == ("Stable", 2)


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_no_cluster_knows_is_dead(world: World, version: int, code: ErrorCode) -> None:
    book = Playbook(describe_groups.handle, DescribeGroupsRequest(groups=["g"]), version, world.view())
    book.answered(described(DEAD), described(DEAD))
    [group] = book.answer.groups
    assert (group.group_state, group.error_code) == ("Dead", code)


def test_a_group_is_not_called_dead_while_a_cluster_is_silent(world: World) -> None:
    book = Playbook(describe_groups.handle, DescribeGroupsRequest(groups=["g"]), 5, world.view())
    book.answered(described(DEAD), Unreachable("c2", "down"))
    look_up(book)
    assert book.answer.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


BEGINS = Unreachable("c2", "no coordinator for 'g': error 15", never_sent=True)


@pytest.mark.parametrize("answer", [BEGINS, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)])
def test_tools_get_the_answer_of_a_coordinator_that_begins(world: World, answer: DescribedGroup | Unreachable) -> None:
    book = Playbook(describe_groups.handle, DescribeGroupsRequest(groups=["g"]), 5, world.view())
    begins = {("c2", int(ApiKey.DESCRIBE_GROUPS)): answer}
    look_up(book, begins)
    if answer is BEGINS:
        look_up(book, begins)
    assert book.gathers() == Gather((), ANY, PAUSE_S, waits_for="coordinator")
    book.answered()
    look_up(book, c2=MEMBERS)
    [group] = book.answer.groups
    assert group.group_state == "Stable"


def test_tools_wait_a_bounded_time_for_a_coordinator(world: World) -> None:
    book = Playbook(describe_groups.handle, DescribeGroupsRequest(groups=["g"]), 5, world.view())
    loads = {("c2", int(ApiKey.DESCRIBE_GROUPS)): refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}
    look_up(book, loads)
    world.now += PATIENCE_S
    book.answered()
    look_up(book, loads)
    assert book.answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_tools_wait_for_no_coordinator_of_a_group_that_has_members_elsewhere(world: World) -> None:
    book = Playbook(describe_groups.handle, DescribeGroupsRequest(groups=["g"]), 5, world.view())
    look_up(book, {("c2", int(ApiKey.DESCRIBE_GROUPS)): refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}, c1=MEMBERS)
    assert book.answer.groups[0].group_state == "Stable"


def test_groups_are_listed_once_each(world: World) -> None:
    book = Playbook(list_groups.handle, ListGroupsRequest(), 4, world.view())
    copy, real = ListedGroup(group_id="g"), ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable")
    book.answered(ListGroupsResponse(groups=[copy]), ListGroupsResponse(groups=[real, ListedGroup(group_id="h")]))
    assert {group.group_id: group.protocol_type for group in book.answer.groups} == {"g": "consumer", "h": ""}


@pytest.mark.parametrize(
    ("states", "types", "shown"),
    [([], [], ["g", "h"]), (["empty"], [], ["h"]), (["Stable"], [], ["g"]), ([], ["Classic"], ["h"])],
)
def test_states_and_types_are_those_of_the_real_group_and_not_of_its_copy(
    world: World, states: list[str], types: list[str], shown: list[str]
) -> None:
    message = ListGroupsRequest(states_filter=states, types_filter=types)
    book = Playbook(list_groups.handle, message, 5, world.view())
    assert all(call.message == ListGroupsRequest() for call in book.asked())
    copy = ListedGroup(group_id="g", group_state="Empty", group_type="classic")
    real = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="consumer")
    other = ListedGroup(group_id="h", protocol_type="consumer", group_state="Empty", group_type="classic")
    book.answered(ListGroupsResponse(groups=[copy, other]), ListGroupsResponse(groups=[real]))
    assert sorted(group.group_id for group in book.answer.groups) == shown


def test_a_cluster_that_knows_no_kinds_has_classic_groups(world: World) -> None:
    world.clusters["c1"].versions[ApiKey.LIST_GROUPS] = VersionRange(0, 4)
    message = ListGroupsRequest(types_filter=["classic"])
    book = Playbook(list_groups.handle, message, 5, world.view())
    assert [call.version for call in book.asked()] == [4, 5]
    book.answered(
        ListGroupsResponse(groups=[ListedGroup(group_id="g")]),
        ListGroupsResponse(groups=[ListedGroup(group_id="h", group_type="share")]),
    )
    assert [(group.group_id, group.group_type) for group in book.answer.groups] == [("g", "classic")]


def test_a_member_that_its_home_does_not_know_has_the_home_looked_up_again(world: World) -> None:
    mesh = at_home(world, "c1").view()
    book = Playbook(group_member.handle_heartbeat, HeartbeatRequest(group_id="g"), 3, mesh)
    unknown = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    book.answered(RawResponse(memoryview(encode(unknown, 3)), 0, 3))
    again = heartbeat_of(world)
    look_up(again, c2=MEMBERS)
    assert [call.cluster for call in again.asked()] == ["c2"]


def test_groups_of_the_clusters_that_answer_are_listed(world: World) -> None:
    book = Playbook(list_groups.handle, ListGroupsRequest(), 4, world.view())
    book.answered(ListGroupsResponse(groups=[ListedGroup(group_id="g")]), Unreachable("c2", "down"))
    assert (book.answer.error_code, [g.group_id for g in book.answer.groups]) == (0, ["g"])
