"""The policy in force: by mode, by what the gateway requires, and closed where it can't be read."""

from __future__ import annotations

import pytest

from mesh.acls import Operation, ResourceType
from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import acls
from services.gateway.authentication.principal import Principal
from services.gateway.authorization.access import REMEMBERED, Authorization, Mode, Required
from services.gateway.downstream.tables import Follower, Tables
from services.gateway.requests.memory import Session
from tests.unit.gateway.authorization.asked import access_of, allow

TOPIC, WRITE = ResourceType.TOPIC, Operation.WRITE
BY_POLICY, REQUIRED = Required.BY_POLICY, Required.REQUIRED


def policy(mode: int, revision: int = 1, user: str = "User:bob", operation: int = 4) -> acls.AclPolicy:
    allowed = acls.Acl(
        resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
        resource_name="apples",
        pattern_type=acls.ACL_PATTERN_TYPE_LITERAL,
        principal=user,
        host="*",
        operation=operation,  # type: ignore[arg-type]  # also numbers of newer releases
        permission=acls.ACL_PERMISSION_ALLOW,
    )
    return acls.AclPolicy(mode=mode, acls=[allowed], super_users=["User:root"], revision=revision)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "required", "mode", "allows"),
    [
        (None, BY_POLICY, Mode.OFF, False),
        (policy(acls.ACL_MODE_UNSPECIFIED), BY_POLICY, Mode.OFF, False),
        (policy(acls.ACL_MODE_OFF), BY_POLICY, Mode.OFF, False),
        (policy(acls.ACL_MODE_OBSERVE), BY_POLICY, Mode.OBSERVE, True),
        (policy(acls.ACL_MODE_ENFORCE), BY_POLICY, Mode.ENFORCE, True),
        (policy(17), BY_POLICY, Mode.ENFORCE, False),
        (policy(acls.ACL_MODE_ENFORCE, operation=99), BY_POLICY, Mode.ENFORCE, False),
        (policy(acls.ACL_MODE_OBSERVE, operation=99), BY_POLICY, Mode.ENFORCE, False),
        (None, REQUIRED, Mode.ENFORCE, False),
        (policy(acls.ACL_MODE_OFF), REQUIRED, Mode.ENFORCE, False),
        (policy(acls.ACL_MODE_OBSERVE), REQUIRED, Mode.ENFORCE, False),
        (policy(acls.ACL_MODE_ENFORCE), REQUIRED, Mode.ENFORCE, True),
    ],
)
def test_the_mode_is_that_of_the_policy_unless_more_is_required(
    message: acls.AclPolicy | None, required: Required, mode: Mode, allows: bool
) -> None:
    rules = Authorization.of(message, required)
    assert rules.mode is mode
    tables = Tables(required)
    tables.run(RoutingTable(1, policies=Policies(acl_policy=message)))
    session = Session()
    session.prove(Principal("bob", "PLAIN"))
    access = Follower(tables, session).access()
    assert (access is None) == (mode is Mode.OFF)
    assert (access is not None and access.allows(WRITE, TOPIC, "apples")) == allows


def test_a_policy_is_compiled_once_for_each_revision_of_its_own() -> None:
    tables = Tables()
    tables.run(RoutingTable(1, policies=Policies(acl_policy=policy(acls.ACL_MODE_ENFORCE, 1))))
    first = tables.authorization
    tables.run(RoutingTable(2, policies=Policies(acl_policy=policy(acls.ACL_MODE_ENFORCE, 1))))
    assert tables.authorization is first
    tables.run(RoutingTable(3, policies=Policies(acl_policy=policy(acls.ACL_MODE_ENFORCE, 2, "User:alice"))))
    assert tables.authorization is not first
    tables.run(RoutingTable(4))
    assert tables.authorization.mode is Mode.OFF


def test_what_a_client_may_do_changes_with_the_policy_and_with_its_identity() -> None:
    tables, session = Tables(), Session()
    tables.run(RoutingTable(1, policies=Policies(acl_policy=policy(acls.ACL_MODE_ENFORCE, 1))))
    follower = Follower(tables, session)

    def may() -> bool:
        access = follower.access()
        return access is None or access.allows(WRITE, TOPIC, "apples")

    assert not may()
    session.prove(Principal("bob", "PLAIN"))
    assert may()
    session.prove(Principal("carol", "OAUTHBEARER", groups=("fruit",)))
    assert not may()
    tables.run(RoutingTable(2, policies=Policies(acl_policy=policy(acls.ACL_MODE_ENFORCE, 2, "Group:fruit"))))
    assert may()
    session.prove(Principal("carol", "OAUTHBEARER"))
    assert not may()
    tables.run(RoutingTable(3, policies=Policies(acl_policy=policy(acls.ACL_MODE_OFF, 3))))
    assert may()


def test_names_without_end_do_not_fill_the_memory() -> None:
    access = access_of([allow(WRITE, TOPIC, "t...")])
    assert all(access.allows(WRITE, TOPIC, f"t{number}") for number in range(2 * REMEMBERED + 1))
    assert len(access._known[TOPIC]) <= REMEMBERED
