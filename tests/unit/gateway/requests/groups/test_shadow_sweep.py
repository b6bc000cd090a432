"""Which shadow topics a gateway deletes, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from services.gateway.requests.groups.shadow_sweep import GONE_S, Orphans, sweep_shadows
from services.gateway.requests.groups.shadow_topics import MARK
from services.gateway.requests.knowledge import TopicKnowledge
from services.gateway.requests.plan import Ask, Call, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.delete_topics import DeletableTopicResult
from services.gateway.wire.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult
from services.gateway.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from services.gateway.wire.messages.metadata import MetadataResponseTopic
from tests.unit.gateway.requests.playbook import World


@dataclass
class Clusters:
    """c1 has a topic `bananas` beside its own; the rules send bananas to c2, which lacks them."""

    world: World = field(default_factory=lambda: World({"c1": ["apples"], "c2": ["bananas"]}, partitions=2))
    mark: str = MARK[1]
    end: int = 0
    unknown: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    """How c2 answers when it is asked for bananas by name."""
    away: frozenset[str] = frozenset()
    deleted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.clusters["c1"].topics["bananas"] = TopicKnowledge("bananas", bytes(16), (1, 1))

    def sweep(self, before: Orphans) -> Orphans:
        plan, outcomes = sweep_shadows(before, self.world.view()), None
        while True:
            try:
                command = plan.send(outcomes)
            except StopIteration as stop:
                orphans: Orphans = stop.value
                return orphans
            assert isinstance(command, Ask)
            outcomes = tuple(self._answer(call) for call in command.calls)

    def _answer(self, call: Call) -> Any:
        if call.cluster in self.away:
            return Unreachable(call.cluster, "away")
        match call.message:
            case MetadataRequest(topics=None):
                names = {"c1": ["apples", "bananas"], "c2": []}[call.cluster]
                return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in names])
            case MetadataRequest(topics=asked) if asked is not None:
                assert call.cluster == "c2"
                return MetadataResponse(topics=[MetadataResponseTopic(self.unknown, each.name) for each in asked])
            case DescribeConfigsRequest():
                configs = [DescribeConfigsResourceResult(MARK[0], self.mark)]
                return DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 2, "bananas", configs)])
            case ListOffsetsRequest():
                parts = [ListOffsetsPartitionResponse(0, offset=0), ListOffsetsPartitionResponse(1, offset=self.end)]
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("bananas", parts)])
            case DeleteTopicsRequest(topic_names=names):
                assert call.cluster == "c1"
                self.deleted += names
                return DeleteTopicsResponse(responses=[DeletableTopicResult(name) for name in names])
        raise AssertionError(f"nobody asks for this: {call}")

    def swept_twice(self) -> list[str]:
        before = self.sweep({})
        assert self.deleted == []
        self.world.now += GONE_S
        self.sweep(before)
        return self.deleted


def test_a_shadow_is_deleted_when_its_topic_has_been_gone_for_long() -> None:
    assert Clusters().swept_twice() == ["bananas"]


def test_its_time_begins_again_if_its_topic_was_seen_meanwhile() -> None:
    clusters = Clusters()
    clusters.world.now += GONE_S
    assert clusters.sweep({("c1", "bananas"): clusters.world.now - GONE_S / 2})
    assert clusters.deleted == []


def test_a_topic_without_the_mark_stays() -> None:
    assert Clusters(mark="9223372036854775807").swept_twice() == []


def test_a_topic_with_a_record_stays() -> None:
    assert Clusters(end=1).swept_twice() == []


def test_a_topic_that_the_gateway_may_not_see_on_its_owner_is_not_gone() -> None:
    assert Clusters(unknown=ErrorCode.TOPIC_AUTHORIZATION_FAILED).swept_twice() == []


def test_a_topic_is_not_gone_while_its_owner_is_away() -> None:
    assert Clusters(away=frozenset({"c2"})).swept_twice() == []
