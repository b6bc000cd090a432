"""Every name in every request becomes full, and every name in every answer the tenant's own again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mesh.tenants import Tenant
from services.gateway.requests.left_out import LEFT_OUT
from services.gateway.requests.plan import Answer, Close, Request
from services.gateway.requests.table import HANDLERS
from services.gateway.tenancy.translation import Translation, translated
from services.gateway.tenancy.treatments import TREATMENTS, Treatment
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.codec import encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreateTopicsResponse,
    DescribeGroupsResponse,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListTransactionsRequest,
    MetadataRequest,
    MetadataResponse,
    StreamsGroupHeartbeatRequest,
    SyncGroupRequest,
    SyncGroupResponse,
    consumer_group_describe,
    create_topics,
    describe_groups,
    find_coordinator,
    join_group,
    metadata,
    streams_group_heartbeat,
    sync_group,
)
from services.gateway.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from services.gateway.wire.primitives import INT16
from services.gateway.wire.schema import Kind, Struct, Type, fields_of, message_of

SHOP = Tenant("shop", "shop.", ("User:shop",), {"currencies": False})
WITH_NAMES = [key for key, treatment in TREATMENTS.items() if treatment is not Treatment.NO_NAMES]
OLDEST = {key: row.versions.low if row.older is None else row.older.versions.low for key, row in HANDLERS.items()}
VERSIONS = [(key, version) for key in WITH_NAMES for version in range(OLDEST[key], HANDLERS[key].versions.high + 1)]


def request(message: Struct, version: int) -> Request:
    frame = memoryview(bytearray(encode_request(message, version, 7, "someone")))
    return Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)


def gone_up(message: Any, version: int) -> tuple[Any, Translation]:
    found = translated(SHOP, request(message, version))
    assert isinstance(found, tuple), f"refused: {found}"
    asked, translation = found
    assert translation is not None
    return asked.decode(type(message)), translation


def come_back(message: Struct, version: int, kind: int | str | None = None) -> Any:
    key = next(key for key in WITH_NAMES if message_of(key, Kind.RESPONSE).cls is type(message))  # type: ignore[union-attr]
    return Translation(SHOP, key, version, kind).answer(message)


def filled(cls: type[Any], version: int, names: tuple[str, ...]) -> list[Any]:
    """One part for each of the names, with the name in each of its fields for names."""
    return [_filled(cls, version, name, names) for name in names]


def _filled(cls: type[Any], version: int, name: str, names: tuple[str, ...]) -> Any:
    values: dict[str, Any] = {}
    for field, spec, _ in fields_of(cls):
        if not spec.present(version):
            continue
        if spec.names is not None or (spec.kind is Type.STRING and field == "resource_name"):
            values[field] = list(names) if spec.repeated else name
        elif spec.struct is not None and spec.struct is not cls:
            parts = filled(spec.struct, version, names)
            values[field] = parts if spec.repeated else parts[0]
        elif field in ("resource_type", "resource_type_filter"):
            values[field] = 2
        elif field in ("pattern_type", "resource_pattern_type", "pattern_type_filter"):
            values[field] = 3
        elif field.endswith(("error_message", "status_detail")):
            values[field] = "topic 'shop.orders' is at fault, and shop.orders alone"
    return cls(**values)


def names_in(part: Any) -> Iterator[str]:
    for field, spec, _ in fields_of(type(part)):
        value = getattr(part, field)
        if spec.struct is not None:
            for each in value if isinstance(value, list) else [] if value is None else [value]:
                yield from names_in(each)
        elif (spec.names is not None or field == "resource_name") and value:
            yield from value if isinstance(value, list) else [value]


# --- all APIs --------------------------------------------------------------------------------------------------------


def test_each_api_has_a_treatment_or_is_not_served() -> None:
    assert set(TREATMENTS) == set(HANDLERS)
    assert set(TREATMENTS) | set(LEFT_OUT) == set(map(int, ApiKey))


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=[f"{api_name(key)}-{version}" for key, version in VERSIONS])
def test_all_names_of_a_request_become_full(key: int, version: int) -> None:
    spec = message_of(key, Kind.REQUEST)
    assert spec is not None
    (message,) = filled(spec.cls, version, ("orders",))
    found, _ = gone_up(message, version)
    names = list(names_in(found))
    assert set(names) <= {"shop.orders"}
    assert len(names) == len([each for each in names_in(message) if each])


NAMED_IN_ANSWERS = [each for each in VERSIONS if each != (ApiKey.LIST_CONFIG_RESOURCES, 0)]
"""Version 0 lists metrics of clients alone."""


@pytest.mark.parametrize(
    ("key", "version"), NAMED_IN_ANSWERS, ids=[f"{api_name(key)}-{version}" for key, version in NAMED_IN_ANSWERS]
)
def test_nothing_in_an_answer_is_anothers_and_nothing_has_the_prefix(key: int, version: int) -> None:
    spec = message_of(key, Kind.RESPONSE)
    assert spec is not None
    message = _filled(spec.cls, version, "shop.orders", ("shop.orders", "bank.orders", "__consumer_offsets"))
    had_names = any(names_in(message))
    answer = Translation(SHOP, key, version, 0).answer(message)
    assert isinstance(answer, Struct)
    written = encode(answer, version)
    assert b"shop." not in written
    assert b"bank." not in written
    assert b"__consumer" not in written
    assert set(names_in(answer)) == ({"orders"} if had_names else set())


def test_an_api_without_a_treatment_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.tenancy.translation.TREATMENTS", {})
    found: object = translated(SHOP, request(MetadataRequest(), 12))
    assert isinstance(found, Close)


# --- shared topics ---------------------------------------------------------------------------------------------------


def test_a_shared_topic_has_its_full_name_on_both_sides() -> None:
    asked = MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in ("currencies", "orders")])
    assert [each.name for each in gone_up(asked, 12)[0].topics] == ["currencies", "shop.orders"]
    told = ("currencies", "shop.currencies", "shop.orders", "events")
    answer = come_back(MetadataResponse(topics=[metadata.MetadataResponseTopic(name=name) for name in told]), 12)
    assert [each.name for each in answer.topics] == ["currencies", "orders"]


def test_a_group_with_the_name_of_a_shared_topic_is_the_tenants() -> None:
    assert gone_up(FindCoordinatorRequest(coordinator_keys=["currencies"]), 4)[0].coordinator_keys == [
        "shop.currencies"
    ]


# --- other fields ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key_type", "full"), [(0, "shop.g"), (1, "shop.g"), (2, "g")])
def test_keys_of_coordinators_are_names_by_their_type(key_type: int, full: str) -> None:
    batched, way = gone_up(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
    assert (batched.coordinator_keys, way.kind) == ([full], key_type)
    assert gone_up(FindCoordinatorRequest(key="g", key_type=key_type), 3)[0].key == full
    answer = FindCoordinatorResponse(coordinators=[find_coordinator.Coordinator(full)])
    assert come_back(answer, 4, key_type).coordinators[0].key == "g"


def subscription(*topics: str, version: int = 3, rest: bytes = b"") -> bytes:
    message = ConsumerProtocolSubscription(
        list(topics), user_data=b"orders", owned_partitions=[TopicPartition(topic, [1]) for topic in topics]
    )
    return INT16.pack(version) + encode(message, min(version, 3)) + rest


def assignment(*topics: str, version: int = 3) -> bytes:
    message = ConsumerProtocolAssignment([TopicPartition(topic, [0, 1]) for topic in topics], b"u")
    return INT16.pack(version) + encode(message, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_of_classic_consumers_are_translated_in_their_bytes(version: int) -> None:
    own, full = subscription("orders", version=version), subscription("shop.orders", version=version)
    joins = JoinGroupRequest("g", protocol_type="consumer", protocols=[join_group.JoinGroupRequestProtocol("r", own)])
    found, way = gone_up(joins, 9)
    assert (found.group_id, bytes(found.protocols[0].metadata), way.kind) == ("shop.g", full, "consumer")
    told = JoinGroupResponse(members=[join_group.JoinGroupResponseMember("m", metadata=full)])
    assert bytes(come_back(told, 5, "consumer").members[0].metadata) == own


def test_what_a_newer_consumer_adds_stays_behind_its_subscription() -> None:
    own = subscription("orders", version=4, rest=b"more")
    joins = JoinGroupRequest("g", protocol_type="consumer", protocols=[join_group.JoinGroupRequestProtocol("r", own)])
    assert bytes(gone_up(joins, 9)[0].protocols[0].metadata) == subscription("shop.orders", version=4, rest=b"more")


@pytest.mark.parametrize("bytes_of_others", [b"", b"\x00", b"\x00\x01connect", subscription("orders")])
def test_bytes_of_other_protocols_stay_as_they_are(bytes_of_others: bytes) -> None:
    protocol = join_group.JoinGroupRequestProtocol("sessioned", bytes_of_others)
    joins = JoinGroupRequest("g", protocol_type="connect", protocols=[protocol])
    assert bytes(gone_up(joins, 9)[0].protocols[0].metadata) == bytes_of_others


@pytest.mark.parametrize(("version", "protocol"), [(5, "consumer"), (4, None), (0, None)])
def test_assignments_are_translated_also_where_no_field_names_the_protocol(version: int, protocol: str | None) -> None:
    given = [sync_group.SyncGroupRequestAssignment("m", assignment("orders"))]
    syncs = SyncGroupRequest("g", protocol_type=protocol, assignments=given)
    found, way = gone_up(syncs, version)
    assert bytes(found.assignments[0].assignment) == assignment("shop.orders")
    told = SyncGroupResponse(assignment=assignment("shop.orders"))
    assert bytes(come_back(told, version, way.kind).assignment) == assignment("orders")


def test_an_assignment_of_connect_stays_as_it_is() -> None:
    given = [sync_group.SyncGroupRequestAssignment("m", assignment("orders"))]
    syncs = SyncGroupRequest("g", protocol_type="connect", assignments=given)
    assert bytes(gone_up(syncs, 5)[0].assignments[0].assignment) == assignment("orders")
    unsure = [sync_group.SyncGroupRequestAssignment("m", b"\x00\x01\x00\x00\x00\x01\x7f")]
    assert bytes(gone_up(SyncGroupRequest("g", assignments=unsure), 0)[0].assignments[0].assignment) == bytes(
        unsure[0].assignment
    )


def test_described_members_show_the_tenants_names() -> None:
    member = describe_groups.DescribedGroupMember(
        member_metadata=subscription("shop.orders"), member_assignment=assignment("shop.orders")
    )
    group = describe_groups.DescribedGroup(group_id="shop.g", protocol_type="consumer", members=[member])
    (found,) = come_back(DescribeGroupsResponse(groups=[group]), 5).groups
    assert found.group_id == "g"
    assert bytes(found.members[0].member_metadata) == subscription("orders")
    assert bytes(found.members[0].member_assignment) == assignment("orders")


def test_expressions_of_subscriptions_are_translated_both_ways() -> None:
    beats = ConsumerGroupHeartbeatRequest("g", subscribed_topic_regex="^or.*|pears")
    expression = gone_up(beats, 1)[0].subscribed_topic_regex
    assert expression == r"\Qshop.\E(?:or.*|pears)"
    member = consumer_group_describe.Member(subscribed_topic_regex=expression)
    told = ConsumerGroupDescribeResponse(
        groups=[consumer_group_describe.DescribedGroup(group_id="shop.g", members=[member])]
    )
    assert come_back(told, 1).groups[0].members[0].subscribed_topic_regex == "or.*|pears"
    assert gone_up(ListTransactionsRequest(transactional_id_pattern="t.*"), 2)[0].transactional_id_pattern == (
        r"\Qshop.\E(?:t.*)"
    )
    part = streams_group_heartbeat.Subtopology(source_topic_regex=["in.*"])
    streams = StreamsGroupHeartbeatRequest("g", topology=streams_group_heartbeat.Topology(1, [part]))
    assert gone_up(streams, 0)[0].topology.subtopologies[0].source_topic_regex == [r"\Qshop.\E(?:in.*)"]


def test_an_expression_that_is_invalid_is_answered_with_the_tenants_own() -> None:
    found: object = translated(SHOP, request(ConsumerGroupHeartbeatRequest("g", subscribed_topic_regex="a)|(b"), 1))
    assert isinstance(found, ConsumerGroupHeartbeatResponse)
    assert found.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "a)|(b" in (found.error_message or "")


def test_sentences_lose_the_prefix_where_it_begins_a_name() -> None:
    text = "topic 'shop.orders' of group shop.g is no workshop.x, as in shop. Ask the shop.orders"
    told = CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("shop.orders", error_message=text)])
    assert come_back(told, 7).topics[0].error_message == (
        "topic 'orders' of group g is no workshop.x, as in shop. Ask the orders"
    )


def test_a_name_that_is_too_long_with_the_prefix_only_is_explained() -> None:
    name = "x" * 245
    result = create_topics.CreatableTopicResult(f"shop.{name}", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    text = come_back(CreateTopicsResponse(topics=[result]), 7).topics[0].error_message
    assert text == (
        "the name has 245 characters, and 244 are possible for this client: the mesh keeps the topic under a prefix of "
        "5 characters"
    )


def test_a_page_of_topics_that_would_go_on_at_anothers_topic_goes_on_nowhere() -> None:
    from services.gateway.wire.messages.describe_topic_partitions import Cursor

    assert come_back(DescribeTopicPartitionsResponse(next_cursor=Cursor("zoo.x", 0)), 0).next_cursor is None


def test_answers_without_names_pass() -> None:
    close: Answer = Close("reason")
    assert Translation(SHOP, ApiKey.METADATA, 12).answer(close) is close
