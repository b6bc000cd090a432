"""Streams groups (KIP-1071): one cluster for what an application reads and for what its coordinator makes."""

from __future__ import annotations

import pytest

from services.gateway.requests.groups import describe_groups, streams_group_member
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Coordinator, Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    MetadataResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from services.gateway.wire.messages.streams_group_heartbeat import Subtopology, TaskIds, TopicInfo, Topology
from services.gateway.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
)
from tests.unit.gateway.requests.lookups import EMPTY, look_up
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples", "g-*"], "c2": ["bananas"]})


def runs(*sources: str, changelog: str = "g-store-changelog", regex: str = "") -> StreamsGroupHeartbeatRequest:
    part = Subtopology(
        subtopology_id="0",
        source_topics=list(sources),
        source_topic_regex=[regex] if regex else [],
        state_changelog_topics=[TopicInfo(name=changelog)],
    )
    return StreamsGroupHeartbeatRequest(group_id="g", member_id="m", topology=Topology(subtopologies=[part]))


def play(world: World, message: StreamsGroupHeartbeatRequest) -> Playbook:
    return Playbook(streams_group_member.handle, message, 0, world.view())


def test_a_member_joins_where_its_topics_are(world: World) -> None:
    book = play(world, runs("apples"))
    look_up(book)
    [call] = book.asked()
    assert (call.cluster, call.target, call.key) == ("c1", Coordinator("g"), ApiKey.STREAMS_GROUP_HEARTBEAT)
    given = StreamsGroupHeartbeatResponse(member_id="m", active_tasks=[TaskIds("0", [0])])
    book.answered(given)
    assert book.answer == given


def test_an_empty_group_goes_where_its_topics_are(world: World) -> None:
    book = play(world, runs("apples"))
    look_up(book, c2=EMPTY)
    assert [call.cluster for call in book.asked()] == ["c1"]


@pytest.mark.parametrize("sources", [["apples", "bananas"], ["bananas"]])
def test_a_topology_that_spans_clusters_is_refused_by_their_names(world: World, sources: list[str]) -> None:
    book = play(world, runs(*sources))
    look_up(book)
    assert book.answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "lives on cluster c1" in str(book.answer.error_message)
    assert "cluster c2: bananas" in str(book.answer.error_message)


def test_an_expression_counts_by_what_it_matches(world: World) -> None:
    book = play(world, runs(regex="bana.*"))
    book.answered(MetadataResponse(), MetadataResponse())
    look_up(book)
    assert "cluster c2: bananas" in str(book.answer.error_message)


def test_internal_topics_need_a_rule_for_the_application_to_see_them(world: World) -> None:
    book = play(world, runs("apples", changelog="h-store-changelog"))
    look_up(book)
    assert book.answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert book.answer.error_message == (
        "The supplied topology is invalid: group g lives on cluster c1, "
        "but no rule leads there from its internal topics: h-store-changelog"
    )


def test_a_home_that_is_away_sends_the_member_to_find_its_coordinator_again(world: World) -> None:
    world.memory.group_homes.put("g", "c1", world.now)
    book = play(world, StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3))
    book.answered(Unreachable("c1", "down"))
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_older_homes_recovery_lag_reaches_a_newer_member_in_its_own_field(world: World) -> None:
    world.memory.group_homes.put("g", "c1", world.now)
    world.clusters["c1"].versions[ApiKey.STREAMS_GROUP_HEARTBEAT] = VersionRange(0, 0)
    message = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    book = Playbook(streams_group_member.handle, message, 1, world.view())
    [call] = book.asked()
    assert call.version == 0
    book.answered(StreamsGroupHeartbeatResponse(acceptable_recovery_lag_legacy=10_000))
    assert (book.answer.acceptable_recovery_lag, book.answer.acceptable_recovery_lag_legacy) == (10_000, 0)
    encode(book.answer, 1)


def describing(world: World) -> Playbook:
    message = StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 1, TopologyDescription())
    return Playbook(streams_group_member.handle_description, message, 0, world.view())


def test_a_topology_is_described_where_the_group_lives(world: World) -> None:
    world.memory.group_homes.put("g", "c2", world.now)
    book = describing(world)
    [call] = book.asked()
    assert (call.cluster, call.target) == ("c2", Coordinator("g"))
    done = StreamsGroupTopologyDescriptionUpdateResponse()
    book.answered(done)
    assert book.answer == done


def test_a_home_that_is_too_old_for_descriptions_says_so(world: World) -> None:
    """It never asks for one, so only a group that has moved meets this."""
    world.memory.group_homes.put("g", "c2", world.now)
    del world.clusters["c2"].versions[ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE]
    answer = describing(world).answer
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message.startswith("The version of API is not supported: ")


def test_who_asks_for_topologies_gets_them_from_clusters_that_keep_them(world: World) -> None:
    world.clusters["c1"].versions[ApiKey.STREAMS_GROUP_DESCRIBE] = VersionRange(0, 0)
    message = StreamsGroupDescribeRequest(["g"], include_topology_description=True)
    book = Playbook(describe_groups.handle_streams_groups, message, 1, world.view())
    for call, (cluster, version) in zip(book.asked(), [("c1", 0), ("c2", 1)], strict=True):
        wanted = StreamsGroupDescribeRequest(["g"], include_topology_description=version == 1)
        assert (call.cluster, call.version, call.message) == (cluster, version, wanted)
