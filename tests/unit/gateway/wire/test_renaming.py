"""Names of topics are replaced wherever a message can hold them, and nothing else is."""

import pytest

from services.gateway.wire.messages import (
    DescribeConfigsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from services.gateway.wire.messages.create_acls import AclCreation, CreateAclsRequest
from services.gateway.wire.messages.describe_configs import DescribeConfigsResource
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic
from services.gateway.wire.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from services.gateway.wire.renaming import names_topics, renamed


def tenant(topic: str) -> str:
    return f"tenant-a.{topic}"


def test_names_deep_inside_are_replaced_in_a_copy() -> None:
    request = FetchRequest(topics=[FetchTopic("apples", partitions=[FetchPartition(3)])], rack_id="apples")
    found = renamed(request, tenant)
    assert [topic.topic for topic in found.topics] == ["tenant-a.apples"]
    assert found.topics[0].partitions is request.topics[0].partitions
    assert found.rack_id == "apples"
    assert request.topics[0].topic == "apples", "the plan's own message stays as it is"


def test_a_message_whose_names_stay_is_the_same_object() -> None:
    request = FetchRequest(topics=[FetchTopic("apples")])
    assert renamed(request, lambda topic: topic) is request


def test_lists_of_names_are_replaced() -> None:
    request = ConsumerGroupHeartbeatRequest("apples", subscribed_topic_names=["apples", "pears"])
    found = renamed(request, tenant)
    assert (found.group_id, found.subscribed_topic_names) == ("apples", ["tenant-a.apples", "tenant-a.pears"])


def test_what_shall_not_be_seen_is_left_out() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name="apples"), MetadataResponseTopic(name="pears")])
    found = renamed(response, lambda topic: None if topic == "pears" else topic)
    assert [topic.name for topic in found.topics] == ["apples"]


def test_topics_without_a_name_are_let_be() -> None:
    request = MetadataRequest([MetadataRequestTopic(bytes(range(16)), None)])
    assert renamed(request, tenant) is request


@pytest.mark.parametrize(("resource_type", "name"), [(2, "tenant-a.apples"), (4, "apples"), (32, "apples")])
def test_a_resource_is_a_topic_only_by_its_type(resource_type: int, name: str) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, "apples", ["apples"])])
    found = renamed(request, tenant)
    assert (found.resources[0].resource_name, found.resources[0].configuration_keys) == (name, ["apples"])


@pytest.mark.parametrize(
    ("kind", "pattern", "given", "name"),
    [(2, 3, "apples", "tenant-a.apples"), (2, 4, "app", "app"), (2, 3, "*", "*"), (3, 3, "apples", "apples")],
)
def test_of_access_rights_only_those_of_one_topic_are_about_it(kind: int, pattern: int, given: str, name: str) -> None:
    request = CreateAclsRequest([AclCreation(resource_type=kind, resource_name=given, resource_pattern_type=pattern)])
    assert renamed(request, tenant).creations[0].resource_name == name


def test_messages_that_name_no_topics_are_known() -> None:
    assert names_topics(FetchRequest)
    assert not names_topics(FindCoordinatorRequest)
