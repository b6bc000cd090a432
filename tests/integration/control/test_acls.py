"""ACLs as decisions at a real control: the log, PostgreSQL, the answers, and the table behind a real router."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from mesh.rpc import acls, acls_grpc, admin, discovery, routing
from services.control.domain.acls.acls import MOST_ACLS, MOST_AT_ONCE
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import CALL, World, checked, log_in_kafka, refused, until
from tests.integration.router.parts import WITHIN_S, DataPlane, ServiceProcess

FAILED, INVALID = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT
SOON_S = 30.0
"""1 s on a machine that is not busy."""


def acl(name: str, principal: str = "User:alice", **fields: Any) -> acls.Acl:
    given: dict[str, Any] = {
        "resource_type": acls.ACL_RESOURCE_TYPE_TOPIC,
        "pattern_type": acls.ACL_PATTERN_TYPE_LITERAL,
        "host": "*",
        "operation": acls.ACL_OPERATION_READ,
        "permission": acls.ACL_PERMISSION_ALLOW,
    }
    return acls.Acl(resource_name=name, principal=principal, **given | fields)


DENIAL = acl("secrets", "User:*", permission=acls.ACL_PERMISSION_DENY)


class Acls:
    """Calls of AclService."""

    def __init__(self, world: World) -> None:
        self.stub = acls_grpc.AclServiceStub(world.channel)

    async def create(self, *wanted: acls.Acl, **more: Any) -> acls.CreateAclsResponse:
        return await self.stub.CreateAcls(acls.CreateAclsRequest(acls=wanted, **more), timeout=CALL)

    async def delete(self, *filters: acls.AclFilter, **more: Any) -> acls.DeleteAclsResponse:
        return await self.stub.DeleteAcls(acls.DeleteAclsRequest(filters=filters, **more), timeout=CALL)

    async def mode(self, mode: acls.AclMode.ValueType, *super_users: str, **more: Any) -> int:
        request = acls.SetAclModeRequest(mode=mode, super_users=acls.AclSuperUsers(principals=super_users), **more)
        return (await self.stub.SetAclMode(request, timeout=CALL)).revision

    async def listed(self, **request: Any) -> acls.ListAclsResponse:
        return await self.stub.ListAcls(acls.ListAclsRequest(**request), timeout=CALL)

    async def names(self, **request: Any) -> list[str]:
        return [each.resource_name for each in (await self.listed(**request)).acls]


async def test_acls_are_added_listed_and_deleted_and_the_past_is_known(world: World) -> None:
    control = Acls(world)
    first = await control.create(acl("orders"), acl("apples"), reason="a new shop")
    assert (first.revision, len(first.created)) == (1, 2)
    again = await control.create(acl("orders"), acl("pears"))
    assert (again.revision, [each.resource_name for each in again.created]) == (2, ["pears"])
    assert (await control.create(acl("pears"))).revision == 2
    assert await control.names() == ["apples", "orders", "pears"]
    assert await control.names(at_revision=1) == ["apples", "orders"]
    gone = await control.delete(acls.AclFilter(resource_name="orders"))
    assert (gone.revision, list(gone.deleted)) == (3, [acl("orders")])
    assert (await control.delete(acls.AclFilter(resource_name="orders"))).revision == 3
    assert await control.names() == ["apples", "pears"]
    assert len(await world.history()) == 3
    await refused(control.listed(at_revision=99), INVALID, "99 is no revision so far")
    await refused(control.create(acl("a b")), INVALID, "acls[0].resource_name")


async def test_a_second_call_with_the_same_id_decides_nothing_and_answers_the_same(world: World) -> None:
    control, request_id = Acls(world), str(uuid.uuid4())
    answers = [await control.create(acl("a"), request_id=request_id) for _ in range(2)]
    assert answers[0] == answers[1]
    assert [each.resource_name for each in answers[1].created] == ["a"]
    none = str(uuid.uuid4())
    assert [(await control.create(acl("a"), request_id=none)).revision for _ in range(2)] == [1, 1]
    deletion = str(uuid.uuid4())
    deleted = [await control.delete(acls.AclFilter(), request_id=deletion) for _ in range(2)]
    assert deleted[0] == deleted[1]
    assert len(deleted[1].deleted) == 1
    await refused(control.create(acl("b"), request_id=request_id), INVALID, "was used for a different request")


async def test_calls_at_the_same_time_are_all_decided(world: World) -> None:
    control = Acls(world)
    made = await asyncio.gather(*(control.create(acl(f"t{number}")) for number in range(20)))
    assert sorted(each.revision for each in made) == list(range(1, 21))
    assert len(await control.names()) == 20


async def test_pages_follow_the_policy_of_the_first_page(world: World) -> None:
    control = Acls(world)
    await control.create(*(acl(f"t{number}") for number in range(5)))
    page = await control.listed(page_size=2)
    found = [each.resource_name for each in page.acls]
    await control.delete(acls.AclFilter(resource_name="t0"))
    while page.next_page_token:
        page = await control.listed(page_size=2, page_token=page.next_page_token)
        found += [each.resource_name for each in page.acls]
    assert found == [f"t{number}" for number in range(5)]
    await refused(control.listed(page_token="made up"), INVALID, "not a token of this list")


async def test_the_mode_is_set_with_super_users_and_nobody_is_locked_out_by_accident(world: World) -> None:
    control = Acls(world)
    await refused(control.mode(acls.ACL_MODE_ENFORCE), FAILED, "would refuse every client")
    assert await control.mode(acls.ACL_MODE_ENFORCE, "User:root") == 1
    assert await control.mode(acls.ACL_MODE_ENFORCE, "User:root") == 1
    known = await control.listed()
    assert (known.mode, list(known.super_users), known.revision) == (acls.ACL_MODE_ENFORCE, ["User:root"], 1)
    assert await control.mode(acls.ACL_MODE_ENFORCE, force=True) == 2


async def test_the_last_acl_that_allows_is_not_deleted_by_accident(world: World) -> None:
    control = Acls(world)
    await control.create(acl("orders"), DENIAL)
    assert await control.mode(acls.ACL_MODE_ENFORCE) == 2
    await refused(control.delete(acls.AclFilter(principal="User:alice")), FAILED, "would refuse every client")
    assert await control.names() == ["orders", "secrets"]
    assert (await control.delete(acls.AclFilter(principal="User:alice"), force=True)).revision == 3
    assert await control.names() == ["secrets"]


async def test_a_router_that_passes_over_acls_prevents_their_mode(world: World) -> None:
    control = Acls(world)
    old = admin.Member(name="members/old", kind=admin.MEMBER_KIND_ROUTER, version="0.1.0", table_format=1)
    report = world.rollouts.Report()
    await report.write(discovery.RouterReport(router=old))
    await until(lambda: bool(world.control.members.routers_below(2)), "control hears the router")
    await refused(control.mode(acls.ACL_MODE_ENFORCE, "User:root"), FAILED, "router 'old' is of release 0.1.0")
    await control.create(acl("a"))
    report.cancel()


async def test_a_frozen_mesh_only_takes_rights_away(world: World) -> None:
    control = Acls(world)
    await control.create(acl("orders"), DENIAL)
    await world.changes.Freeze(admin.FreezeRequest(reason="a quiet week"), timeout=CALL)
    await refused(control.create(acl("pears")), FAILED, "changes are refused")
    await refused(control.delete(acls.AclFilter()), FAILED, "changes are refused")
    await refused(control.mode(acls.ACL_MODE_OFF), FAILED, "changes are refused")
    await control.create(acl("orders", permission=acls.ACL_PERMISSION_DENY))
    await control.delete(acls.AclFilter(permission=acls.ACL_PERMISSION_ALLOW))
    assert await control.names() == ["orders", "secrets"]


async def test_history_and_audit_tell_of_acls(world: World) -> None:
    control = Acls(world)
    await control.create(acl("orders"), reason="a new shop")
    await control.mode(acls.ACL_MODE_OBSERVE, "User:root")
    await control.delete(acls.AclFilter(resource_name="orders"))
    found = await world.decisions.ListHistory(admin.ListHistoryRequest(name="acls"), timeout=CALL)
    assert [each.changes[0] for each in found.entries] == [
        "ACL deleted: allows User:alice from host * to read literal topic 'orders'",
        "ACLs have mode observe: gateways count and audit what they would refuse",
        "ACL added: allows User:alice from host * to read literal topic 'orders'",
    ]
    audit = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    assert [(each.method.rpartition("/")[2], each.resource, each.revision) for each in audit.audit_events] == [
        ("DeleteAcls", "acls", 3),
        ("SetAclMode", "acls", 2),
        ("CreateAcls", "acls", 1),
    ]


async def test_rules_go_back_and_acls_stay(mesh_of_two: World) -> None:
    control = Acls(mesh_of_two)
    await mesh_of_two.set("apples", "c1")
    await control.create(acl("apples"))
    await mesh_of_two.rules.Revert(admin.RevertRequest(last=True), timeout=CALL)
    assert await control.names() == ["apples"]
    table = mesh_of_two.control.journal.view.state.effective
    assert not table.rules
    assert table.policies.acl_policy is not None


async def test_acls_survive_a_restart_and_the_log_is_whole(world: World) -> None:
    control = Acls(world)
    await control.create(acl("orders"), acl("apples"))
    await control.mode(acls.ACL_MODE_ENFORCE, "User:root")
    await control.delete(acls.AclFilter(resource_name="orders"))
    before = await control.listed()
    await world.published(3)
    await world.stop()
    await world.start()
    assert await Acls(world).listed() == before
    report = await asyncio.to_thread(checked, world)
    assert not report.differences
    assert report.published == report.events == 3
    told = await asyncio.to_thread(log_in_kafka, world.home, world.settings.events_topic, 3)
    assert [each.WhichOneof("payload") for each in told] == ["acls_created", "acl_mode_set", "acls_deleted"]


@asynccontextmanager
async def router_of(world: World, folder: Path, name: str = "r1") -> AsyncIterator[ServiceProcess]:
    """A real router of this mesh, in a process of its own."""
    router = ServiceProcess(
        "router",
        free_block(2),
        folder / f"{name}.log",
        {
            "NAME": name,
            "HOME_BOOTSTRAP_SERVERS": world.home,
            "EVENTS_TOPIC": world.settings.events_topic,
            "SNAPSHOTS_TOPIC": f"{world.settings.events_topic}.snapshots",
            "CONTROL_ADDRESSES": f"127.0.0.1:{world.control.port}",
        },
    )
    router.start()
    try:
        await asyncio.to_thread(wait_until, lambda: router.ready() == "ready", "the router is ready", WITHIN_S)
        yield router
    finally:
        await asyncio.to_thread(router.stop)


async def applied(gateway: DataPlane, revision: int) -> routing.RoutingTable:
    """The table of this revision, or a later one; each table is acknowledged."""
    while True:
        order = await gateway.order()
        assert order.WhichOneof("kind") == "apply"
        await gateway.ack(order.apply.revision)
        if order.apply.revision >= revision:
            return order.apply


async def test_a_decision_is_in_the_table_of_gateways_within_seconds(mesh_of_two: World, tmp_path: Path) -> None:
    control = Acls(mesh_of_two)
    async with router_of(mesh_of_two, tmp_path) as router, DataPlane("g1", router.address) as gateway:
        table = await applied(gateway, 2)
        assert not table.HasField("acl_policy")
        revision = (await control.create(acl("orders"), DENIAL)).revision
        began = time.monotonic()
        table = await applied(gateway, revision)
        assert time.monotonic() - began < SOON_S
        assert (list(table.acl_policy.acls), table.acl_policy.revision) == ([acl("orders"), DENIAL], revision)
        assert len(table.clusters) == 2
        revision = await control.mode(acls.ACL_MODE_ENFORCE, "User:root")
        table = await applied(gateway, revision)
        assert (table.acl_policy.mode, list(table.acl_policy.super_users)) == (acls.ACL_MODE_ENFORCE, ["User:root"])
        began = time.monotonic()
        revision = (await control.delete(acls.AclFilter(resource_name="orders"))).revision
        table = await applied(gateway, revision)
        assert time.monotonic() - began < SOON_S
        assert list(table.acl_policy.acls) == [DENIAL]


async def test_ten_thousand_acls_reach_a_gateway(mesh_of_two: World, tmp_path: Path) -> None:
    control = Acls(mesh_of_two)
    async with router_of(mesh_of_two, tmp_path) as router, DataPlane("g1", router.address) as gateway:
        for start in range(0, MOST_ACLS, MOST_AT_ONCE):
            batch = [acl(f"topic-{n}", f"User:service-{n % 1000}") for n in range(start, start + MOST_AT_ONCE)]
            revision = (await control.create(*batch)).revision
        table = await applied(gateway, revision)
        assert len(table.acl_policy.acls) == MOST_ACLS
        await refused(control.create(acl("one-more")), FAILED, "10000 are possible")
        began = time.monotonic()
        revision = (await control.delete(acls.AclFilter(principal="User:service-7"))).revision
        table = await applied(gateway, revision)
        assert time.monotonic() - began < SOON_S
        assert len(table.acl_policy.acls) == MOST_ACLS - 10


async def test_control_explains_which_acl_decides(world: World) -> None:
    control = Acls(world)

    async def explained(name: str, principal: str = "User:alice", **more: Any) -> acls.ExplainClientAccessResponse:
        request = acls.ExplainClientAccessRequest(
            principal=principal,
            operation=acls.ACL_OPERATION_READ,
            resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
            resource_name=name,
            **more,
        )
        return await control.stub.ExplainClientAccess(request, timeout=CALL)

    prefix = acl("or", "Group:shop", pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED, host="10.0.0.1")
    await control.create(prefix, DENIAL)
    found = await explained("orders")
    assert (found.allowed, found.HasField("acl"), found.client_message) == (False, False, "")
    assert "because no ACL allows it. Mode off: no ACL counts" in found.explanation
    enforced = await control.mode(acls.ACL_MODE_ENFORCE, "User:root")
    found = await explained("orders", more_principals=["Group:shop"], host="::ffff:10.0.0.1")
    assert (found.allowed, found.acl) == (True, prefix)
    assert "User:alice may read topic 'orders', because an ACL allows Group:shop" in found.explanation
    assert not (await explained("orders", more_principals=["Group:shop"], host="10.0.0.2")).allowed
    found = await explained("secrets")
    assert (found.allowed, found.acl) == (False, DENIAL)
    assert found.client_message == "TOPIC_AUTHORIZATION_FAILED: Topic authorization failed"
    found = await explained("secrets", "User:root")
    assert (found.allowed, found.super_user, found.mode) == (True, True, acls.ACL_MODE_ENFORCE)
    await control.delete(acls.AclFilter())
    assert not (await explained("orders", more_principals=["Group:shop"], host="10.0.0.1")).allowed
    at = await explained("orders", more_principals=["Group:shop"], host="10.0.0.1", at_revision=enforced)
    assert at.allowed
    await refused(explained("orders", "User:*"), INVALID, "is no client")
    await refused(explained(""), INVALID, "name the topic")
