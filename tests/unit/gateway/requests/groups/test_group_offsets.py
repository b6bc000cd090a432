"""Offsets beyond the plain case: topics by id, shadow topics, members of newer groups, clusters away or older."""

from __future__ import annotations

import pytest

from mesh.routing import ExactName, ForwardingRule, Subject
from services.gateway.requests.groups import offset_commit, offset_delete, offset_fetch
from services.gateway.requests.knowledge import TopicKnowledge, VersionRange
from services.gateway.requests.plan import Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import CreateTopicsResponse, HeartbeatResponse, MetadataResponse
from services.gateway.wire.messages.consumer_group_describe import DescribedGroup, Member
from services.gateway.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from services.gateway.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from services.gateway.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from services.gateway.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.unit.gateway.requests.lookups import look_up
from tests.unit.gateway.requests.playbook import Playbook, World

STRANGE = b"nobody knows it!"


@pytest.fixture
def world() -> World:
    world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=2)
    world.memory.group_homes.put("g", "c1", world.now)
    return world


def with_shadows(world: World) -> World:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c1", shadow_topics=True))
    return world


def shown_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


def commit(*topics: OffsetCommitRequestTopic, member: str = "m", epoch: int = 3) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member, topics=list(topics))


def at(name: str = "", topic_id: bytes = bytes(16), partition: int = 0) -> OffsetCommitRequestTopic:
    offset = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="")
    return OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[offset])


def committed(**errors: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic, partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=error)]
            )
            for topic, error in errors.items()
        ]
    )


def test_a_commit_by_ids_goes_by_names_and_comes_back_by_ids(world: World) -> None:
    request = commit(at(topic_id=shown_id("apples")), at(topic_id=STRANGE), at(topic_id=shown_id("bananas")))
    book = Playbook(offset_commit.handle, request, 10, world.view())
    assert {call.key for call in book.asked()} == {ApiKey.METADATA}  # whose id is that?
    book.answered(MetadataResponse(), MetadataResponse())
    [home] = book.asked()
    assert isinstance(home.message, OffsetCommitRequest)
    assert (home.cluster, home.version, [topic.name for topic in home.message.topics]) == ("c1", 9, ["apples"])
    book.answered(committed(apples=0))
    book.answered(committed(bananas=0))
    assert {topic.topic_id: topic.partitions[0].error_code for topic in book.answer.topics} == {
        shown_id("apples"): 0,
        shown_id("bananas"): 0,
        STRANGE: ErrorCode.UNKNOWN_TOPIC_ID,
    }


@pytest.mark.parametrize(
    ("epoch", "member", "fence"),
    [(3, "m", None), (2, "m", ErrorCode.STALE_MEMBER_EPOCH), (3, "zombie", ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_a_member_without_classic_heartbeats_is_looked_for_in_its_groups_description(
    world: World, epoch: int, member: str, fence: ErrorCode | None
) -> None:
    """Its topic has moved away from its home."""
    book = Playbook(offset_commit.handle, commit(at("bananas"), member=member, epoch=epoch), 9, world.view())
    book.answered(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    living = DescribedGroup(group_id="g", group_state="Stable", members=[Member(member_id="m", member_epoch=3)])
    look_up(book, {("c1", ApiKey.CONSUMER_GROUP_DESCRIBE): living})
    if fence is None:
        assert [call.cluster for call in book.asked()] == ["c2"]
        book.answered(committed(bananas=0))
    assert book.answer.topics[0].partitions[0].error_code == (fence or 0)


def test_with_shadow_topics_the_home_keeps_all_offsets(world: World) -> None:
    book = Playbook(offset_commit.handle, commit(at("apples"), at("bananas")), 9, with_shadows(world).view())
    [made] = book.asked()
    assert isinstance(made.message, CreateTopicsRequest)
    world.clusters["c1"].topics["bananas"] = TopicKnowledge("bananas", b"b" * 16, (1, 1))
    book.answered(CreateTopicsResponse(topics=[CreatableTopicResult(name="bananas")]))
    [call] = book.asked()
    assert isinstance(call.message, OffsetCommitRequest)
    assert (call.cluster, call.message.member_id) == ("c1", "m")
    assert [topic.name for topic in call.message.topics] == ["apples", "bananas"]
    book.answered(committed(apples=0, bananas=0))
    assert [topic.partitions[0].error_code for topic in book.answer.topics] == [0, 0]
    # where the home is known to have the topic, nothing is asked before
    again = Playbook(offset_commit.handle, commit(at("bananas"), member="", epoch=-1), 9, world.view())
    assert [(call.cluster, call.key) for call in again.asked()] == [("c1", ApiKey.OFFSET_COMMIT)]


def fetch(*groups: OffsetFetchRequestGroup) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=list(groups), require_stable=True)


def of(group: str, *topics: OffsetFetchRequestTopics) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=group, topics=list(topics) or None)


def stands(group: str, *topics: str, error: int = 0) -> OffsetFetchResponse:
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="")
    told = [OffsetFetchResponseTopics(name=topic, partitions=[part]) for topic in topics]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group, error_code=error, topics=told)])


def test_offsets_by_ids_are_fetched_by_names_and_come_back_by_ids(world: World) -> None:
    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (shown_id("bananas"), STRANGE)]
    book = Playbook(offset_fetch.handle, fetch(of("g", *wanted)), 10, world.view())
    book.answered(MetadataResponse(), MetadataResponse())
    [call] = book.asked()
    assert (call.cluster, call.version) == ("c2", 9)
    book.answered(stands("g", "bananas"))
    [group] = book.answer.groups
    found = {
        topic.topic_id: (topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in group.topics
    }
    assert found == {shown_id("bananas"): (7, 0), STRANGE: (-1, ErrorCode.UNKNOWN_TOPIC_ID)}


def test_an_id_that_a_cluster_which_is_away_may_know_is_asked_for_again(world: World) -> None:
    """A gateway that has just started: UNKNOWN_TOPIC_ID would end consumers."""
    world.clusters["c2"].down = "connection refused"
    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (shown_id("apples"), STRANGE)]
    book = Playbook(offset_fetch.handle, fetch(of("g", *wanted)), 10, world.view())
    book.answered(MetadataResponse())
    book.answered(stands("g", "apples"))
    [group] = book.answer.groups
    assert (group.error_code, group.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


def test_with_shadow_topics_the_home_alone_is_asked(world: World) -> None:
    wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("apples", "bananas")]
    for topics in (wanted, []):
        book = Playbook(offset_fetch.handle, fetch(of("g", *topics)), 9, with_shadows(world).view())
        assert [call.cluster for call in book.asked()] == ["c1"]
        book.answered(stands("g", "apples", "bananas"))
        assert [topic.name for topic in book.answer.groups[0].topics] == ["apples", "bananas"]


def test_with_shadow_topics_offsets_are_forgotten_at_home(world: World) -> None:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("apples", "bananas")]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    book = Playbook(offset_delete.handle, request, 0, with_shadows(world).view())
    look_up(book)
    [call] = book.asked()
    assert isinstance(call.message, OffsetDeleteRequest)
    assert (call.cluster, [topic.name for topic in call.message.topics]) == ("c1", ["apples", "bananas"])


def test_groups_are_asked_side_by_side_and_fail_alone(world: World) -> None:
    apples = OffsetFetchRequestTopics(name="apples", partition_indexes=[0])
    bananas = OffsetFetchRequestTopics(name="bananas", partition_indexes=[0])
    book = Playbook(offset_fetch.handle, fetch(of("g", apples), of("h", bananas)), 9, world.view())
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    book.answered(stands("g", "apples"), Unreachable("c2", "down"))
    assert [(group.group_id, group.error_code) for group in book.answer.groups] == [
        ("g", ErrorCode.NONE),
        ("h", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]


def test_only_the_groups_home_is_asked_in_a_members_name(world: World) -> None:
    """A cluster where the group was before would refuse a member that it does not know."""
    wanted = of("g", *(OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("apples", "bananas")))
    wanted.member_id, wanted.member_epoch = "m", 3
    book = Playbook(offset_fetch.handle, fetch(wanted), 9, world.view())
    members = {}
    for call in book.asked():
        assert isinstance(call.message, OffsetFetchRequest)
        [group] = call.message.groups
        members[call.cluster] = (group.member_id, group.member_epoch)
    assert members == {"c1": ("m", 3), "c2": (None, -1)}
    book.answered(stands("g", "apples"), stands("g", "bananas"))
    assert [topic.name for topic in book.answer.groups[0].topics] == ["apples", "bananas"]


def test_who_asks_for_all_is_told_what_there_is_while_a_cluster_is_away(world: World) -> None:
    world.clusters["c2"].down = "connection refused"
    book = Playbook(offset_fetch.handle, fetch(of("g")), 9, world.view())
    book.answered(stands("g", "apples"), Unreachable("c2", "connection refused"))
    [group] = book.answer.groups
    assert group.error_code == ErrorCode.NONE
    assert {topic.name: [p.error_code for p in topic.partitions] for topic in group.topics} == {
        "apples": [ErrorCode.NONE],
        "bananas": [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2,
    }


def test_a_cluster_that_knows_one_group_at_a_time_is_asked_so(world: World) -> None:
    world.clusters["c1"].versions[ApiKey.OFFSET_FETCH] = VersionRange(0, 5)
    apples = OffsetFetchRequestTopics(name="apples", partition_indexes=[0])
    book = Playbook(offset_fetch.handle, fetch(of("g", apples)), 9, world.view())
    [call] = book.asked()
    assert isinstance(call.message, OffsetFetchRequest)
    assert (call.version, call.message.group_id, call.message.require_stable) == (5, "g", False)
    part = OffsetFetchResponsePartition(partition_index=0, committed_offset=7, metadata="")
    book.answered(OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="apples", partitions=[part])]))
    assert book.answer.groups[0].topics[0].partitions[0].committed_offset == 7
