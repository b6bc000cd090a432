"""Roles as decisions, at a control that asks for certificates: real processes, PostgreSQL and clusters."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mesh.rpc import access, admin, admin_grpc, audit, audit_grpc, grants, grants_grpc, routing
from mesh.rpc.channels import open_channel
from mesh.rpc.tls import RpcTls
from services.control.store import leader
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.forked_meshctl import forked_meshctl
from tests.fixtures.members import certificate_of
from tests.integration.control.world import CALL, World, refused, until

DENIED = grpc.StatusCode.PERMISSION_DENIED
COUNTS_WITHIN_S = 5.0
"""1 s on a machine that is not busy."""
ROUNDS = 3
VIEWER, OPERATOR, ADMIN = access.ROLE_VIEWER, access.ROLE_OPERATOR, access.ROLE_ADMIN


class Caller:
    """A person or program with a certificate, at one control."""

    def __init__(self, world: World, tls: RpcTls, on_behalf_of: str = "") -> None:
        self.channel = open_channel(f"127.0.0.1:{world.control.port}", tls)
        self.access = grants_grpc.AccessServiceStub(self.channel)
        self.rules = admin_grpc.RuleServiceStub(self.channel)
        self.decisions = admin_grpc.QueryServiceStub(self.channel)
        self.changes = admin_grpc.ChangeControlServiceStub(self.channel)
        self.metadata = (("x-mesh-on-behalf-of", on_behalf_of),) if on_behalf_of else ()

    async def grant(self, principal: str, role: access.Role.ValueType, **more: Any) -> int:
        narrowing = {name: more.pop(name) for name in ("clusters", "topic_prefixes", "sidecars") if name in more}
        wanted = grants.Grant(principal=principal, role=role, **more)
        wanted.narrowing.CopyFrom(grants.Narrowing(**narrowing))
        return (await self.access.GrantRole(grants.GrantRoleRequest(grant=wanted), timeout=CALL)).revision

    async def revoke(self, principal: str) -> int:
        return (await self.access.RevokeRole(grants.RevokeRoleRequest(principal=principal), timeout=CALL)).revision

    def set(self, topic: str, cluster: str) -> Awaitable[admin.RuleChangeResponse]:
        request = admin.SetRuleRequest(match=routing.RuleMatch(topic=topic), target_cluster=cluster)
        return self.rules.SetRule(request, timeout=CALL, metadata=self.metadata)

    def list_rules(self) -> Awaitable[admin.ListRulesResponse]:
        return self.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)

    async def granted(self, **request: Any) -> list[tuple[str, int]]:
        answer = await self.access.ListGrants(grants.ListGrantsRequest(**request), timeout=CALL)
        return [(each.principal, each.role) for each in answer.grants]


@pytest.fixture
async def secured(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, authority: Authority
) -> AsyncIterator[World]:
    """Control with c1 and c2. Root is the first admin, by a certificate that says viewer."""
    folder = certificate_of(authority, "control", "control-1").folder
    made = World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder, first_admins=("root",))
    made.caller = certificate_of(authority, "viewer", "root")
    async with made as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.register("c2", kafka_c2.bootstrap)
        world.control.members.ever_reported = True
        yield world


@contextlib.asynccontextmanager
async def caller(
    world: World, authority: Authority, role: str, name: str, on_behalf_of: str = ""
) -> AsyncIterator[Caller]:
    made = Caller(world, certificate_of(authority, role, name), on_behalf_of)
    try:
        yield made
    finally:
        await made.channel.close()


async def test_a_grant_decides_and_not_the_role_in_the_certificate(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "viewer", "ada") as ada,
    ):
        await ada.list_rules()
        await refused(ada.set("apples", "c1"), DENIED, "needs the role operator; ada has viewer (by its certificate)")
        revision = await root.grant("ada", OPERATOR)
        await ada.set("apples", "c1")
        assert (await secured.history())[0].actor == "ada"
        assert await root.revoke("ada") == revision + 2
        await refused(ada.list_rules(), DENIED, "a decision has taken all rights from ada")
        assert await root.revoke("ada") == 0


async def test_a_narrowed_grant_is_for_its_clusters_and_topics_alone(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "admin", "ada") as ada,
    ):
        revision = await root.grant("ada", ADMIN, clusters=["c1"], topic_prefixes=["shop."])
        await ada.set("shop.orders", "c1")
        needed = f"ada has admin for topics shop.* on clusters c1 (revision {revision}), but the call names"
        await refused(ada.set("pay", "c1"), DENIED, "topic pay", f"{needed} topic pay")
        await refused(ada.set("shop.orders", "c2"), DENIED, f"{needed} cluster c2")
        await root.set("pay", "c2")
        [rule] = [each for each in (await root.list_rules()).rules if each.spec.match.topic == "pay"]
        remove = admin.RemoveRuleRequest(name=rule.name)
        await refused(ada.rules.RemoveRule(remove, timeout=CALL), DENIED, f"{needed} cluster c2")
        whole = "names no cluster, and so concerns the whole mesh"
        await refused(ada.list_rules(), DENIED, whole)
        await refused(ada.changes.Freeze(admin.FreezeRequest(reason="x"), timeout=CALL), DENIED, whole)
        await refused(ada.grant("ada", ADMIN, clusters=["c1"], topic_prefixes=["shop."]), DENIED, whole)


async def test_a_narrowed_viewer_reads_nothing_beyond_its_topics(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "viewer", "vera") as vera,
    ):
        await root.grant("vera", VIEWER, topic_prefixes=["shop."])
        await vera.decisions.Explain(admin.ExplainRequest(topic="shop.orders"), timeout=CALL)
        for call in (
            vera.decisions.Explain(admin.ExplainRequest(topic="pay"), timeout=CALL),
            vera.list_rules(),
            vera.decisions.GetStatus(admin.GetStatusRequest(), timeout=CALL),
            vera.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL),
            vera.decisions.WatchEvents(admin.WatchEventsRequest(from_position=1)).read(),
        ):
            await refused(call, DENIED, "vera has viewer for topics shop.*")


async def test_every_refused_call_is_on_record(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "operator", "eve") as eve,
    ):
        await root.revoke("eve")
        await refused(eve.list_rules(), DENIED)
        await refused(eve.set("apples", "c1"), DENIED)
        await refused(eve.decisions.WatchEvents(admin.WatchEventsRequest()).read(), DENIED)
    async with caller(secured, authority, "king", "kim") as kim:
        await refused(kim.list_rules(), grpc.StatusCode.UNAUTHENTICATED, "names no caller")
        watch = kim.decisions.WatchEvents(admin.WatchEventsRequest())
        await refused(watch.read(), grpc.StatusCode.UNAUTHENTICATED, "names no caller")

    async def methods() -> list[tuple[str, str]]:
        request = admin.ListAuditEventsRequest(refused_only=True)
        found = (await secured.decisions.ListAuditEvents(request, timeout=CALL)).audit_events
        return [(each.actor.partition(":")[0], each.method.rpartition("/")[2]) for each in reversed(found)]

    async def all_are_there() -> bool:
        return len(await methods()) >= 5

    await until(all_are_there, "five refused calls are on record")
    assert await methods() == [
        ("eve", "ListRules"),
        ("eve", "SetRule"),
        ("eve", "WatchEvents"),
        ("ipv4", "ListRules"),
        ("ipv4", "WatchEvents"),
    ]


async def test_the_first_admin_cannot_be_locked_out(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "admin", "ada") as ada,
    ):
        await refused(ada.revoke("root"), grpc.StatusCode.FAILED_PRECONDITION, "first_admins")
        await root.revoke("ada")
        assert ("root", ADMIN) in await root.granted()


async def test_grants_are_as_of_a_revision_and_come_back_and_outlive_control(
    secured: World, authority: Authority
) -> None:
    async with caller(secured, authority, "viewer", "root") as root:
        await root.grant("ada", OPERATOR)
        then = await root.grant("bob", VIEWER)
        await root.revoke("bob")
        await root.grant("ada", ADMIN)
        assert await root.granted(at_revision=then) == [("ada", OPERATOR), ("bob", VIEWER)]
        await root.access.RevertGrants(grants.RevertGrantsRequest(to_revision=then), timeout=CALL)
        assert await root.granted() == [("ada", OPERATOR), ("bob", VIEWER), ("root", ADMIN)]
        history = await secured.decisions.ListHistory(admin.ListHistoryRequest(name="access/bob"), timeout=CALL)
        assert [each.changes[0].partition(",")[0] for each in history.entries] == [
            "bob is viewer",
            "bob has no rights any more",
            "bob is viewer",
        ]
    await secured.stop()
    await secured.start()
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "viewer", "ada") as ada,
    ):
        assert await root.granted(principal="ada") == [("ada", OPERATOR)]
        await ada.set("apples", "c1")


async def test_a_request_that_comes_twice_grants_once(secured: World, authority: Authority) -> None:
    async with caller(secured, authority, "viewer", "root") as root:
        request = grants.GrantRoleRequest(
            grant=grants.Grant(principal="ada", role=VIEWER), request_id="6d657368-0000-4000-8000-000000000001"
        )
        first = await root.access.GrantRole(request, timeout=CALL)
        await root.revoke("ada")
        assert (await root.access.GrantRole(request, timeout=CALL)) == first
        assert ("ada", VIEWER) not in await root.granted()


async def test_a_frozen_mesh_grants_nothing_and_revokes(secured: World, authority: Authority) -> None:
    async with caller(secured, authority, "viewer", "root") as root:
        await root.grant("ada", VIEWER)
        await root.changes.Freeze(admin.FreezeRequest(reason="inventory"), timeout=CALL)
        await refused(root.grant("bob", VIEWER), grpc.StatusCode.FAILED_PRECONDITION, "inventory")
        await root.revoke("ada")


@pytest.mark.parametrize("notified", [True, False], ids=["notified", "notifications are lost"])
async def test_a_revoked_grant_counts_within_a_second_at_each_replica(
    secured: World, authority: Authority, kafka_c1: KafkaCluster, monkeypatch: pytest.MonkeyPatch, notified: bool
) -> None:
    """The quickest of several rounds counts: others share the machine."""
    if not notified:
        monkeypatch.setattr(leader, "CHANNEL", "nobody_notifies_here")  # the first control listens already
    folder = certificate_of(authority, "control", "control-1").folder
    second = World(
        secured.settings.database_url.get_secret_value(), kafka_c1.bootstrap, secured.settings.events_topic,
        rpc_tls_folder=folder, first_admins=("root",),
    )  # fmt: skip
    second.caller = certificate_of(authority, "viewer", "root")
    await second.start(wait=False)
    try:
        async with (
            caller(secured, authority, "viewer", "root") as root,
            caller(secured, authority, "viewer", "vera") as here,
            caller(second, authority, "viewer", "vera") as there,
        ):
            follower = second.control.journal
            await until(lambda: follower.loaded, "the second control follows")
            seconds = []
            for _ in range(ROUNDS):
                await asyncio.wait_for(follower.grown_beyond(await root.grant("vera", VIEWER) - 1), CALL)
                watches = [
                    each.decisions.WatchEvents(admin.WatchEventsRequest(from_position=1)) for each in (here, there)
                ]
                for watch in watches:
                    await asyncio.wait_for(watch.read(), CALL)
                await there.list_rules()
                position = await root.revoke("vera")
                began = time.monotonic()
                await refused(here.list_rules(), DENIED)  # at the replica that leads: before RevokeRole answers
                await asyncio.wait_for(follower.grown_beyond(position - 1), CALL)
                seconds.append(time.monotonic() - began)
                await refused(there.list_rules(), DENIED, "a decision has taken all rights from vera")
                for watch in watches:
                    await refused(_to_the_end(watch), DENIED)
            print("seconds until the other replica knew:", [round(each, 3) for each in seconds])
            assert min(seconds) < COUNTS_WITHIN_S
    finally:
        await second.stop()


async def _to_the_end(watch: Any) -> None:
    while True:
        await asyncio.wait_for(watch.read(), CALL)


async def test_only_a_grant_lets_a_program_call_on_behalf_of_somebody(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "operator", "ci", on_behalf_of="ada@corp") as ci,
    ):
        await refused(ci.set("apples", "c1"), DENIED, "ci may not call on behalf of ada@corp")
        await root.grant("ci", OPERATOR, on_behalf_of_others=True)
        await ci.set("apples", "c1")
        event = (await secured.history())[0]
        assert (event.actor, event.on_behalf_of) == ("ci", "ada@corp")
        audited = await secured.decisions.ListAuditEvents(admin.ListAuditEventsRequest(actor="ci"), timeout=CALL)
        assert [(each.code, each.on_behalf_of) for each in audited.audit_events] == [
            ("OK", "ada@corp"),
            ("PERMISSION_DENIED", "ada@corp"),
        ]


async def test_a_change_whose_actor_is_shut_out_is_not_made(secured: World, authority: Authority) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "operator", "ada") as ada,
    ):
        command = admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c1")
        request = admin.ScheduleChangeRequest()
        request.command.Pack(command)
        request.time.FromSeconds(int(secured.control.schedules.clock().timestamp()) + 3)
        scheduled = await ada.changes.ScheduleChange(request, timeout=CALL)
        await root.revoke("ada")
        await until(lambda: scheduled.name not in secured.control.journal.view.schedules, "the change has come due")
        ended = (await secured.history(stream=scheduled.name))[0].scheduled_change_ended
        assert "a decision has taken all rights from ada" in ended.problem
        assert not (await root.list_rules()).rules


async def test_meshctl_grants_explains_and_revokes(secured: World, authority: Authority, tmp_path: Path) -> None:
    address = f"127.0.0.1:{secured.control.port}"

    async def meshctl(user: RpcTls, *words: str) -> tuple[int, str]:
        command = ["--address", address, "--tls-folder", str(user.folder), *words]
        done = await asyncio.to_thread(forked_meshctl().call, command, {}, tmp_path)
        return done.returncode, done.stdout + done.stderr

    root, ada = certificate_of(authority, "viewer", "root"), certificate_of(authority, "viewer", "ada")
    code, said = await meshctl(root, "access", "grant", "ada", "operator", "--topics", "shop.", "--for-others")
    assert code == 0, said
    assert said.startswith("ada is operator for topics shop.* (revision ")
    code, said = await meshctl(ada, "rule", "set", "--topic", "shop.a", "--to", "c1", "--on-behalf-of", "bob")
    assert code == 0, said
    code, said = await meshctl(ada, "access", "list")
    assert code == 1
    assert "needs the role viewer; ada has operator for topics shop.*" in said
    code, said = await meshctl(root, "access", "list", "ada")
    assert "for topics shop.*" in said
    explain = ("access", "explain", "ada", "RuleService/SetRule", "--topic")
    code, said = await meshctl(root, *explain, "shop.b")
    assert said.startswith("allowed: operator for topics shop.* (revision ")
    code, said = await meshctl(root, *explain, "pay")
    assert said.startswith("refused: RuleService/SetRule on topic pay needs the role operator; ada has operator")
    code, said = await meshctl(root, "history", "--principal", "ada")
    assert "ada is operator for topics shop.*" in said
    code, said = await meshctl(root, "history", "-n", "1")
    assert "ada for bob" in said
    code, said = await meshctl(root, "access", "revoke", "ada", "--reason", "the laptop is gone")
    assert said.startswith("ada has no rights any more (revision ")
    code, said = await meshctl(ada, "status")
    assert "a decision has taken all rights from ada" in said


async def test_a_narrowed_viewer_looks_up_refusals_about_its_own_topics_alone(
    secured: World, authority: Authority
) -> None:
    async with (
        caller(secured, authority, "viewer", "root") as root,
        caller(secured, authority, "viewer", "ada") as ada,
    ):
        await root.grant("ada", VIEWER, topic_prefixes=["shop."])
        stub = audit_grpc.AuditServiceStub(ada.channel)

        async def look_up(topic: str = "", topic_prefix: str = "") -> audit.ListRefusalsResponse:
            request = audit.ListRefusalsRequest(principal="User:bob", topic=topic, topic_prefix=topic_prefix)
            return await stub.ListRefusals(request, timeout=CALL)

        for allowed in (look_up("shop.orders"), look_up(topic_prefix="shop.")):
            assert (await allowed).freshness.problem
        for beyond in (look_up(), look_up("pay"), look_up(topic_prefix="sh")):
            await refused(beyond, DENIED, "needs the role viewer")
