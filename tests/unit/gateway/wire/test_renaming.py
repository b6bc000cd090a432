"""Names of topics are replaced wherever a message can hold them, and nothing else is."""

import pytest

from services.gateway.wire.messages import (
    AddOffsetsToTxnRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsResponse,
    FetchRequest,
    FindCoordinatorRequest,
    ListGroupsResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from services.gateway.wire.messages.create_acls import AclCreation, CreateAclsRequest
from services.gateway.wire.messages.describe_configs import DescribeConfigsResource
from services.gateway.wire.messages.describe_topic_partitions import Cursor
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic
from services.gateway.wire.messages.list_groups import ListedGroup
from services.gateway.wire.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from services.gateway.wire.renaming import Renames, names_any, renamed
from services.gateway.wire.schema import Named


def tenant(name: str) -> str:
    return f"tenant-a.{name}"


TOPICS: Renames = {Named.TOPIC: tenant}


def test_names_deep_inside_are_replaced_in_a_copy() -> None:
    request = FetchRequest(topics=[FetchTopic("apples", partitions=[FetchPartition(3)])], rack_id="apples")
    found = renamed(request, TOPICS)
    assert [topic.topic for topic in found.topics] == ["tenant-a.apples"]
    assert found.topics[0].partitions is request.topics[0].partitions
    assert found.rack_id == "apples"
    assert request.topics[0].topic == "apples", "the plan's own message stays as it is"


def test_a_message_whose_names_stay_is_the_same_object() -> None:
    request = FetchRequest(topics=[FetchTopic("apples")])
    assert renamed(request, {Named.TOPIC: lambda topic: topic}) is request


def test_lists_of_names_are_replaced() -> None:
    request = ConsumerGroupHeartbeatRequest("apples", subscribed_topic_names=["apples", "pears"])
    found = renamed(request, TOPICS)
    assert (found.group_id, found.subscribed_topic_names) == ("apples", ["tenant-a.apples", "tenant-a.pears"])


def test_what_shall_not_be_seen_is_left_out() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name="apples"), MetadataResponseTopic(name="pears")])
    found = renamed(response, {Named.TOPIC: lambda topic: None if topic == "pears" else topic})
    assert [topic.name for topic in found.topics] == ["apples"]


def test_topics_without_a_name_are_let_be() -> None:
    request = MetadataRequest([MetadataRequestTopic(bytes(range(16)), None)])
    assert renamed(request, TOPICS) is request


@pytest.mark.parametrize(("resource_type", "name"), [(2, "tenant-a.apples"), (4, "apples"), (32, "apples")])
def test_a_resource_is_a_topic_only_by_its_type(resource_type: int, name: str) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, "apples", ["apples"])])
    found = renamed(request, TOPICS)
    assert (found.resources[0].resource_name, found.resources[0].configuration_keys) == (name, ["apples"])


@pytest.mark.parametrize(
    ("kind", "pattern", "given", "name"),
    [(2, 3, "apples", "tenant-a.apples"), (2, 4, "app", "app"), (2, 3, "*", "*"), (3, 3, "apples", "apples")],
)
def test_of_access_rights_only_those_of_one_topic_are_about_it(kind: int, pattern: int, given: str, name: str) -> None:
    request = CreateAclsRequest([AclCreation(resource_type=kind, resource_name=given, resource_pattern_type=pattern)])
    assert renamed(request, TOPICS).creations[0].resource_name == name


def test_groups_and_transactional_ids_are_replaced_where_they_have_other_names() -> None:
    request = AddOffsetsToTxnRequest(transactional_id="t", group_id="g")
    assert renamed(request, TOPICS) is request
    found = renamed(request, {Named.GROUP: str.upper, Named.TRANSACTIONAL_ID: tenant})
    assert (found.transactional_id, found.group_id) == ("tenant-a.t", "G")
    listed = ListGroupsResponse(groups=[ListedGroup("a"), ListedGroup("b")])
    shown = renamed(listed, {Named.GROUP: lambda name: None if name == "a" else name})
    assert [each.group_id for each in shown.groups] == ["b"]


def test_a_part_about_a_thing_that_shall_not_be_seen_is_left_out() -> None:
    response = DescribeTopicPartitionsResponse(next_cursor=Cursor("pears", 3))
    assert renamed(response, {Named.TOPIC: lambda _: None}).next_cursor is None


def test_messages_that_name_nothing_are_known() -> None:
    topics = frozenset({Named.TOPIC})
    assert names_any(FetchRequest, topics)
    assert names_any(DescribeConfigsRequest, topics)
    assert not names_any(FindCoordinatorRequest, frozenset(Named))
    assert not names_any(AddOffsetsToTxnRequest, topics)
