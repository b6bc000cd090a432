"""Streams groups (KIP-1071): one cluster for what an application reads and for what its coordinator makes."""

from __future__ import annotations

import pytest

from services.gateway.requests.groups import streams_group_member
from services.gateway.requests.plan import Coordinator, Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    MetadataResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from services.gateway.wire.messages.streams_group_heartbeat import Subtopology, TaskIds, TopicInfo, Topology
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
        "group g lives on cluster c1, but no rule leads there from its internal topics: h-store-changelog"
    )


def test_a_home_that_is_away_sends_the_member_to_find_its_coordinator_again(world: World) -> None:
    world.memory.group_homes.put("g", "c1", world.now)
    book = play(world, StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3))
    book.answered(Unreachable("c1", "down"))
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
