"""A tenant's rights are bounded, whatever ACLs allow, and also where there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mesh.acls import Operation, ResourceType
from mesh.tenants import Policy, Tenant
from services.gateway.authentication.principal import Principal
from services.gateway.authorization.access import Access, Authorization, Mode
from services.gateway.authorization.asking import Asking
from services.gateway.authorization.guarding import guarded
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.plan import Close, Request
from services.gateway.requests.table import HANDLERS
from services.gateway.tenancy.treatments import TREATMENTS, Treatment
from services.gateway.wire.apis import api_name
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.messages import delete_topics, fetch, metadata, offset_commit, produce, share_fetch
from services.gateway.wire.schema import Kind, Struct, api_key_of, message_of
from tests.unit.gateway.authorization.asked import BOB, NAMES, ask, topic_id
from tests.unit.gateway.requests.playbook import World

TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
SHOP = Tenant("shop", "shop.", ("User:shop",), {"currencies": False, "events": True})
TENANTS = Policy([SHOP], 1)


def access(mode: Mode = Mode.OFF, user: str = "shop") -> Access:
    return Access.of(Authorization(mode), Principal(user), "10.0.0.1", TENANTS)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_without_acls_a_tenant_may_do_all_with_what_has_its_prefix_and_nothing_else(mode: Mode) -> None:
    shop = access(mode)
    assert shop.enforces
    assert shop.allows(Operation.DELETE, TOPIC, "shop.orders")
    assert shop.allows(Operation.READ, GROUP, "shop.g")
    assert shop.allows(Operation.WRITE, TRANSACTION, "shop.t")
    for name in ("bank.orders", "orders", "", "shop.", "shop", "__consumer_offsets"):
        assert not shop.operations(TOPIC, name)
        assert not shop.operations(GROUP, name)
        assert not shop.operations(TRANSACTION, name)


def test_a_shared_topic_may_be_read_or_written_and_never_changed() -> None:
    shop = access()
    for topic, writable in (("currencies", False), ("events", True)):
        assert shop.allows(Operation.READ, TOPIC, topic)
        assert shop.allows(Operation.DESCRIBE_CONFIGS, TOPIC, topic)
        assert shop.allows(Operation.WRITE, TOPIC, topic) is writable
        for operation in (Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS):
            assert not shop.allows(operation, TOPIC, topic)
    assert not shop.operations(TOPIC, "shop.currencies"), "the shared topic hides it"
    assert not shop.operations(GROUP, "currencies")


def test_of_the_cluster_a_tenant_may_write_with_idempotence_alone() -> None:
    shop = access()
    allowed = [each for each in Operation if shop.allows(each, ResourceType.CLUSTER)]
    assert allowed == [Operation.IDEMPOTENT_WRITE]
    assert not shop.operations(ResourceType.USER, "User:bank")
    assert not shop.operations(ResourceType.DELEGATION_TOKEN, "t")


def test_acls_that_are_enforced_count_within_the_bounds() -> None:
    assert not access(Mode.ENFORCE).operations(TOPIC, "shop.orders"), "no ACL allows it"


def test_a_client_without_tenant_is_as_before() -> None:
    assert access(user="ann").is_free
    assert not access(Mode.OBSERVE, "ann").enforces
    assert access(Mode.ENFORCE, "ann").tenant is None


CLUSTER_APIS = [key for key, treatment in TREATMENTS.items() if treatment is Treatment.CLUSTER]


@pytest.mark.parametrize("key", CLUSTER_APIS, ids=map(api_name, CLUSTER_APIS))
def test_an_api_of_the_cluster_is_refused_without_a_question_to_a_cluster(key: int) -> None:
    handler, spec = HANDLERS[key], message_of(key, Kind.REQUEST)
    assert spec is not None
    message: Struct = spec.cls()
    frame = memoryview(bytearray(encode_request(message, handler.versions.high, 1, "c")))
    refusals: list[Refusal] = []
    request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
    plan = guarded(handler, request, World({"c1": {}}).view(), access(), refusals.append)
    with pytest.raises(StopIteration) as end:
        next(plan)
    assert not isinstance(end.value.value, Close)
    assert [each.reason for each in refusals] == ["tenant 'shop' has no right to it"]
    assert refusals[0].enforced


B_ONLY = Policy([Tenant("b", "b", ("User:bob",))], 1)
"""Three topics: apples, bananas and cherries. The tenant has bananas alone."""


def bounded() -> Access:
    return Access.of(Authorization(), BOB, "127.0.0.1", B_ONLY)


STRANGE = bytes(range(16))
"""No topic has this id."""
ID_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_ID


def test_an_id_of_another_tenants_topic_is_as_an_id_that_no_topic_has() -> None:
    """Both ids are asked for at the same time, and are told the same."""
    world = World({"c1": NAMES})
    world.memory.strange_topic_ids.put(STRANGE, True, world.now)
    for name, (message, version, told) in by_ids(topic_id("apples"), STRANGE).items():
        asked = ask(message, version, bounded(), empty_answer, world)
        assert told(asked.answer) == [ID_UNKNOWN, ID_UNKNOWN], name
        assert not asked.refusals, name


def by_ids(*ids: bytes) -> dict[str, tuple[Struct, int, Callable[[Any], list[int]]]]:
    """Requests that name topics by these ids, and the error of each."""
    return {
        "Metadata": (
            metadata.MetadataRequest([metadata.MetadataRequestTopic(each, None) for each in ids]),
            12,
            lambda answer: [each.error_code for each in answer.topics],
        ),
        "Fetch": (
            fetch.FetchRequest(
                session_epoch=-1,
                topics=[fetch.FetchTopic(topic_id=each, partitions=[fetch.FetchPartition(0)]) for each in ids],
            ),
            13,
            lambda answer: [part.error_code for each in answer.responses for part in each.partitions],
        ),
        "Produce": (
            produce.ProduceRequest(
                acks=-1,
                topic_data=[
                    produce.TopicProduceData(topic_id=each, partition_data=[produce.PartitionProduceData(0, b"")])
                    for each in ids
                ],
            ),
            13,
            lambda answer: [part.error_code for each in answer.responses for part in each.partition_responses],
        ),
        "DeleteTopics": (
            delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(None, each) for each in ids]),
            6,
            lambda answer: [each.error_code for each in answer.responses],
        ),
        "ShareFetch": (
            share_fetch.ShareFetchRequest(
                "b-group", "m", topics=[share_fetch.FetchTopic(each, [share_fetch.FetchPartition(0)]) for each in ids]
            ),
            1,
            lambda answer: [part.error_code for each in answer.responses for part in each.partitions],
        ),
        "OffsetCommit": (
            offset_commit.OffsetCommitRequest(
                "b-group",
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        topic_id=each, partitions=[offset_commit.OffsetCommitRequestPartition(0, 1)]
                    )
                    for each in ids
                ],
            ),
            10,
            lambda answer: [part.error_code for each in answer.topics for part in each.partitions],
        ),
    }


def empty_answer(message: Any) -> Struct:
    spec = message_of(api_key_of(message), Kind.RESPONSE)
    assert spec is not None
    return spec.cls()


def test_what_acls_would_refuse_is_observed_within_the_bounds_alone() -> None:
    refusals: list[Refusal] = []
    observed = Access.of(Authorization(Mode.OBSERVE), BOB, "127.0.0.1", B_ONLY)
    frame = memoryview(bytearray(encode_request(metadata.MetadataRequest([]), 12, 1, "c")))
    request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
    asking = Asking(HANDLERS[3], request, World({"c1": NAMES}).view(), observed, refusals.append)
    assert asking.may(Operation.READ, TOPIC, "bananas")
    assert not asking.may(Operation.READ, TOPIC, "apples")
    assert [(each.resource_name, each.enforced, each.reason) for each in refusals] == [
        ("bananas", False, "no ACL allows it"),
        ("apples", True, "tenant 'b' has no right to it"),
    ]
