"""A tenant's rights are bounded, whatever ACLs allow, and also where there are none."""

from __future__ import annotations

import pytest

from mesh.acls import Operation, ResourceType
from mesh.tenants import Policy, Tenant
from services.gateway.authentication.principal import Principal
from services.gateway.authorization.access import Access, Authorization, Mode
from services.gateway.authorization.guarding import guarded
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.plan import Close, Request
from services.gateway.requests.table import HANDLERS
from services.gateway.tenancy.treatments import TREATMENTS, Treatment
from services.gateway.wire.apis import api_name
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.schema import Kind, Struct, message_of
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
