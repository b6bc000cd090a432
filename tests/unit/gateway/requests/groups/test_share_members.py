"""Members of share groups (KIP-932): at home with all their topics, and on each other cluster with its own."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mesh.routing import ClientMatch, ExactName, ForwardingRule, RoutingTable, RuleVersion, Subject
from services.gateway.requests.groups import share_group_member
from services.gateway.requests.groups.group_kinds import SHARE, Description
from services.gateway.requests.groups.share_members import ShareMember, ShareMembers
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Call, Coordinator, Forget, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from services.gateway.wire.messages import share_group_describe as described
from services.gateway.wire.messages.share_group_heartbeat import Assignment, TopicPartitions
from tests.unit.gateway.requests.lookups import look_up
from tests.unit.gateway.requests.playbook import Playbook, World

BOTH = ["apples", "bananas"]


@pytest.fixture
def world() -> World:
    """The group lives on c1."""
    world = World({"c1": ["apples"], "c2": ["bananas"], "c3": ["cherries"]})
    world.memory.group_homes.put("g", "c1", world.now)
    return world


def beat(world: World, epoch: int, topics: list[str] | None = None, group: str = "g") -> Playbook:
    message = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, rack_id=None, subscribed_topic_names=topics
    )
    return Playbook(share_group_member.handle, message, 1, world.view())


def answer(epoch: int, *topics: str, interval_ms: int = 5000) -> ShareGroupHeartbeatResponse:
    given = Assignment([TopicPartitions(real_id(topic), [0]) for topic in topics])
    return ShareGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=interval_ms, assignment=given
    )


def failed(code: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code)


def real_id(topic: str) -> bytes:
    return topic.encode().ljust(16)


def shown_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


def told(calls: Iterable[Call]) -> list[tuple[str, int, list[str] | None]]:
    """Cluster, epoch and topics of each heartbeat."""
    messages = [(call.cluster, call.message) for call in calls]
    assert all(isinstance(message, ShareGroupHeartbeatRequest) for _, message in messages)
    return [(to, m.member_epoch, m.subscribed_topic_names) for to, m in messages]  # type: ignore[union-attr]


def topics_of(book: Playbook) -> list[str]:
    """The topics that the client is assigned."""
    names = {shown_id(topic): topic for topic in (*BOTH, "cherries")}
    return sorted(names[topic.topic_id] for topic in book.answer.assignment.topic_partitions)


def joined(world: World) -> World:
    """The member reads both topics."""
    beat(world, 0, BOTH).answered(answer(2, "apples"), answer(7, "bananas"))
    return world


def test_a_member_joins_where_its_topics_are_and_sees_their_ids_in_the_mesh(world: World) -> None:
    book = beat(world, 0, ["bananas"], group="h")
    look_up(book)
    [call] = book.asked()
    assert (call.cluster, call.target) == ("c2", Coordinator("h"))
    book.answered(answer(1, "bananas"))
    assert topics_of(book) == ["bananas"]


def test_home_hears_of_all_topics_and_each_other_cluster_of_its_own(world: World) -> None:
    book = beat(world, 0, BOTH)
    assert told(book.asked()) == [("c1", 0, BOTH), ("c2", 0, ["bananas"])]
    book.answered(answer(2, "apples"), answer(7, "bananas", interval_ms=3000))
    assert topics_of(book) == BOTH
    assert (book.answer.member_epoch, book.answer.heartbeat_interval_ms) == (2, 3000)


def test_later_heartbeats_name_the_topics_again_so_that_each_answer_is_whole(world: World) -> None:
    book = beat(joined(world), 2)
    assert told(book.asked()) == [("c1", 2, BOTH), ("c2", 0, ["bananas"])]
    book.answered(answer(3), answer(8, "bananas"))
    assert topics_of(book) == ["bananas"]
    assert book.answer.member_epoch == 3


def test_a_cluster_that_is_away_keeps_the_partitions_that_it_assigned_last(world: World) -> None:
    book = beat(joined(world), 2)
    book.answered(answer(2, "apples"), Unreachable("c2", "down"))
    assert topics_of(book) == BOTH
    assert Forget("c2", Coordinator("g")) in book.noted


def test_a_member_joins_without_the_topics_of_a_cluster_that_is_away_and_gets_them_later(world: World) -> None:
    book = beat(world, 0, BOTH)
    book.answered(answer(2, "apples"), failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert topics_of(book) == ["apples"]
    book = beat(world, 2)
    book.answered(answer(2, "apples"), answer(1, "bananas"))
    assert topics_of(book) == BOTH


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_only_home_fences_the_client(world: World, code: ErrorCode) -> None:
    book = beat(joined(world), 2)
    book.answered(failed(code), answer(7, "bananas"))
    assert (book.answer.error_code, book.answer.assignment) == (code, None)


def test_a_home_that_is_away_delays_no_heartbeat_elsewhere(world: World) -> None:
    book = beat(joined(world), 2)
    assert len(book.asked()) == 2
    book.answered(Unreachable("c1", "down"), answer(7, "bananas"))
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert told(beat(world, 2).asked()) == [("c1", 2, BOTH), ("c2", 0, ["bananas"])]


def test_a_cluster_that_refuses_the_member_refuses_it_for_the_group_by_name(world: World) -> None:
    book = beat(world, 0, BOTH)
    refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="No.")
    book.answered(answer(2, "apples"), refusal)
    assert book.answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert "cluster c2: No." in book.answer.error_message


def test_a_member_that_leaves_leaves_everywhere(world: World) -> None:
    book = beat(joined(world), -1)
    assert told(book.asked()) == [("c1", -1, None), ("c2", -1, None)]
    book.answered(answer(-1), Unreachable("c2", "down"))
    assert (book.answer.error_code, book.answer.member_epoch) == (0, -1)
    assert len(world.memory.share_members) == 0


def test_a_gateway_that_does_not_know_the_member_that_leaves_tells_all_clusters(world: World) -> None:
    book = beat(world, -1)
    assert told(book.asked()) == [("c1", -1, None), ("c2", -1, None), ("c3", -1, None)]
    unknown = failed(ErrorCode.GROUP_ID_NOT_FOUND)
    book.answered(answer(-1), answer(-1), unknown)
    assert book.answer.error_code == ErrorCode.NONE


def test_a_cluster_whose_topics_the_member_gives_up_is_left(world: World) -> None:
    book = beat(joined(world), 2, ["apples"])
    assert told(book.asked()) == [("c1", 2, ["apples"]), ("c2", -1, None)]
    book.answered(answer(2, "apples"), answer(-1))
    assert topics_of(book) == ["apples"]
    assert told(beat(world, 2).asked()) == [("c1", 2, ["apples"])]


def test_a_topic_that_moves_is_read_on_its_new_cluster_and_the_one_without_topics_is_left(world: World) -> None:
    joined(world).move("bananas", "c3")
    world.clusters["c3"].topic_names[real_id("bananas")] = "bananas"
    book = beat(world, 2)
    assert told(book.asked()) == [("c1", 2, BOTH), ("c3", 0, ["bananas"]), ("c2", -1, None)]
    book.answered(answer(2, "apples"), answer(4, "bananas"), answer(-1))
    assert topics_of(book) == BOTH
    assert told(beat(world, 2).asked()) == [("c1", 2, BOTH), ("c3", 0, ["bananas"])]


def test_a_topic_that_has_left_home_is_not_read_there_any_more(world: World) -> None:
    """Home goes on to assign what was left behind."""
    joined(world).move("apples", "c2")
    book = beat(world, 2)
    assert told(book.asked()) == [("c1", 2, BOTH), ("c2", 0, BOTH)]
    book.answered(answer(2, "apples"), answer(7, "bananas"))
    assert topics_of(book) == ["bananas"]


def entry(epoch: int, topics: list[str], *given: str, member: str = "m") -> described.Member:
    assignment = described.Assignment([described.TopicPartitions(real_id(each), each, [0]) for each in given])
    return described.Member(member_id=member, member_epoch=epoch, subscribed_topic_names=topics, assignment=assignment)


def describe(book: Playbook, **members: list[described.Member] | Unreachable) -> None:
    """Answers what each cluster knows of the group; one that is not named does not know it."""
    outcomes: list[ShareGroupDescribeResponse | Unreachable] = []
    for call in book.asked():
        assert call.key == ApiKey.SHARE_GROUP_DESCRIBE
        found = members.get(call.cluster, [])
        if isinstance(found, Unreachable):
            outcomes.append(found)
            continue
        group = SHARE.description(group_id="g", group_state="Stable" if found else "Dead", members=found)
        group.error_code = ErrorCode.NONE if found else ErrorCode.GROUP_ID_NOT_FOUND
        outcomes.append(ShareGroupDescribeResponse(groups=[group]))
    book.answered(*outcomes)


def test_a_gateway_that_does_not_know_the_member_learns_its_topics_from_home(world: World) -> None:
    book = beat(world, 2)
    other = entry(9, ["cherries"], member="other")
    describe(book, c1=[entry(2, BOTH, "apples"), other], c2=[entry(7, ["bananas"], "bananas")])
    assert told(book.asked()) == [("c1", 2, BOTH), ("c2", 0, ["bananas"])]
    book.answered(answer(2, "apples"), Unreachable("c2", "down"))
    assert topics_of(book) == BOTH


def test_a_client_that_comes_on_another_connection_may_have_named_other_topics_elsewhere(world: World) -> None:
    joined(world).session = Session("127.0.0.1:6", "test")
    book = beat(world, 3)
    describe(book, c1=[entry(3, ["cherries"])], c3=[entry(1, ["cherries"])])
    assert told(book.asked()) == [("c1", 3, ["cherries"]), ("c3", 0, ["cherries"])]


def test_a_member_that_home_does_not_know_joins_again(world: World) -> None:
    book = beat(world, 2)
    describe(book, c2=[entry(7, ["bananas"], "bananas")])
    assert book.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_whom_another_cluster_knows_more_than_home_is_asked_to_join_again(world: World) -> None:
    book = beat(world, 2)
    describe(book, c1=[entry(2, ["apples"], "apples")], c2=[entry(7, ["bananas"], "bananas")])
    assert book.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "bananas" in book.answer.error_message


def test_a_home_that_does_not_tell_is_to_be_asked_again(world: World) -> None:
    book = beat(world, 2)
    describe(book, c1=Unreachable("c1", "down"), c2=[entry(7, ["bananas"], "bananas")])
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "group g lives on cluster c1" in book.answer.error_message


def test_home_is_where_members_are_with_all_their_topics(world: World) -> None:
    """The branch comes first in the table, and has as many members."""
    world.memory.group_homes.drop("g")
    group = SHARE.description(group_id="g", group_state="Stable")
    book = beat(world, 0, BOTH)
    found: dict[tuple[str, int], Description | Unreachable] = {
        ("c1", ApiKey.SHARE_GROUP_DESCRIBE): _with(group, entry(1, ["apples"])),
        ("c2", ApiKey.SHARE_GROUP_DESCRIBE): _with(group, entry(1, BOTH)),
    }
    look_up(book, found)
    assert [call.cluster for call in book.asked()] == ["c2", "c1"]


def _with(group: described.DescribedGroup, member: described.Member) -> described.DescribedGroup:
    return described.DescribedGroup(group_id=group.group_id, group_state=group.group_state, members=[member])


def test_home_is_told_of_its_own_topics_by_its_own_names(world: World) -> None:
    world.move("apples", "c1", "apples-on-c1")
    book = beat(world, 0, BOTH)
    assert told(book.asked())[0] == ("c1", 0, ["apples-on-c1", "bananas"])
    assert [call.own_names for call in book.asked()] == [True, False]
    world.session = Session("127.0.0.1:6", "test")
    book = beat(world, 2)
    describe(book, c1=[entry(2, ["apples-on-c1", "bananas"])])
    assert told(book.asked()) == [("c1", 2, ["apples-on-c1", "bananas"]), ("c2", 0, ["bananas"])]


def test_a_rule_about_the_group_forbids_topics_of_other_clusters(world: World) -> None:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c1"))
    refused = beat(world, 0, BOTH).answer
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "group g lives on cluster c1, but subscribes to topics of other clusters" in refused.error_message
    assert "(cluster c2: bananas): use a rule about the group with shadow_topics" in refused.error_message
    book = beat(world, 0, ["apples"])
    assert told(book.asked()) == [("c1", 0, ["apples"])]


def test_a_rule_with_shadow_topics_says_where_the_group_lives_alone(world: World) -> None:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c3", shadow_topics=True))
    book = beat(world, 0, BOTH)
    assert told(book.asked()) == [("c3", 0, BOTH), ("c1", 0, ["apples"]), ("c2", 0, ["bananas"])]


def test_topics_of_a_cluster_without_share_groups_are_refused_by_name(world: World) -> None:
    del world.clusters["c2"].versions[ApiKey.SHARE_GROUP_HEARTBEAT]
    refused = beat(world, 0, BOTH).answer
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "topics of cluster c2 (bananas), which has no share groups" in refused.error_message


def test_topics_whose_names_other_clients_use_at_home_are_refused(world: World) -> None:
    theirs = ForwardingRule("theirs", ExactName("bananas", client=ClientMatch(client_id="other")), "c1")
    versions = [RuleVersion(theirs, -1.0, 1), *world.table.versions]
    world.table = RoutingTable(world.table.revision, world.table.clusters.values(), versions)
    refused = beat(world, 0, BOTH).answer
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "group g lives on cluster c1" in refused.error_message
    assert "bananas" in refused.error_message


def test_a_mesh_of_one_cluster_passes_heartbeats_as_they_are() -> None:
    world = World({"c1": ["apples"]})
    book = beat(world, 2)
    assert told(book.asked()) == [("c1", 2, None)]
    book.answered(ShareGroupHeartbeatResponse(member_id="m", member_epoch=2))
    assert book.answer.assignment is None
    assert len(world.memory.share_members) == 0


def test_members_that_were_seen_first_make_way_for_others() -> None:
    members = ShareMembers(capacity=10)
    for number in range(4):
        members.put(("g", str(number)), ShareMember(1, ("apples",), {"c1": {"apples": [0, 1]}}))
    assert [members.get(("g", str(number)), 1) is None for number in range(4)] == [True, True, False, False]
    assert len(members) == 8
    members.put(("g", "large"), ShareMember(1, tuple("abcdefghijk")))
    assert len(members) == 0
