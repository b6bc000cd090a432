"""A mesh whose members have certificates: real processes, a caller for each role, and callers that lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mesh.rpc import admin, admin_grpc, discovery, discovery_grpc, instances, instances_grpc, users_grpc
from mesh.rpc.channels import open_channel
from services.control.decisions.members import rollouts
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.forked_meshctl import forked_meshctl
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import CALL, World, refused, until
from tests.integration.router.parts import ServiceProcess


@pytest.fixture
async def secured(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, authority: Authority
) -> AsyncIterator[World]:
    """Control with c1 and c2, which asks for certificates. An admin calls."""
    folder = certificate_of(authority, "control", "control-1").folder
    made = World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder)
    made.caller = certificate_of(authority, "admin", "ada")
    async with made as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.register("c2", kafka_c2.bootstrap)
        yield world


async def test_routers_and_gateways_with_certificates_move_a_topic(
    secured: World,
    authority: Authority,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollouts, "COMEBACK_TIME", 0.3)
    secured.control.members.ever_reported = True
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    gateways = GatewayPair(secured, unique_name("tls"), clusters, tmp_path)
    gateways.authority = authority
    try:
        await gateways.start()
        await secured.set(gateways.topic, "c2")
        await gateways.produce(gateways.g1, "moved")
        assert await gateways.records("c2") == ["moved"]
        assert (await secured.history())[0].actor == "ada"

        router = gateways.routers[0].address
        hello = discovery.Hello(member=admin.Member(name="g1"))
        denied = grpc.StatusCode.PERMISSION_DENIED
        # a hello that is written into a call that is over hides the refusal: only the last caller gets so far
        for caller, says_hello, code, words in (
            (None, False, grpc.StatusCode.UNAVAILABLE, ""),
            (certificate_of(authority, "sidecar", "g1"), False, denied, "for the role gateway"),
            (certificate_of(authority, "gateway", "g9"), True, denied, "hello names g1"),
        ):
            async with open_channel(router, caller) as channel:
                watch = discovery_grpc.DiscoveryServiceStub(channel).Watch()
                if says_hello:
                    await watch.write(discovery.WatchRequest(hello=hello))
                await refused(watch.read(), code, words)
    finally:
        await gateways.stop()


async def test_a_caller_may_do_what_its_role_allows_and_a_refusal_is_audited(
    secured: World, authority: Authority
) -> None:
    viewer = certificate_of(authority, "viewer", "vera")
    async with open_channel(f"127.0.0.1:{secured.control.port}", viewer) as channel:
        rules = admin_grpc.RuleServiceStub(channel)
        assert not (await rules.ListRules(admin.ListRulesRequest(), timeout=CALL)).rules
        change = rules.SetRule(
            admin.SetRuleRequest(target_cluster="c1", options=admin.ChangeOptions(reason="why not")), timeout=CALL
        )
        await refused(
            change, grpc.StatusCode.PERMISSION_DENIED, "needs the role operator; vera has viewer (by its certificate)"
        )

    async def refusals() -> list[admin.AuditEvent]:
        events = await secured.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
        return [each for each in events.audit_events if each.code == "PERMISSION_DENIED"]

    async def is_audited() -> bool:
        return bool(await refusals())

    await until(is_audited, "the refused call is on record")
    (event,) = await refusals()
    assert (event.actor, event.method, event.reason) == ("vera", "/mesh.v1.RuleService/SetRule", "why not")


async def test_a_member_that_names_another_one_is_refused(secured: World, authority: Authority) -> None:
    sidecar = certificate_of(authority, "sidecar", "shop")
    async with open_channel(f"127.0.0.1:{secured.control.port}", sidecar) as channel:
        service = instances_grpc.InstanceServiceStub(channel)
        await service.Beat(instances.BeatRequest(member=admin.Member(name="shop")), timeout=CALL)
        lie = service.Beat(instances.BeatRequest(member=admin.Member(name="till")), timeout=CALL)
        await refused(lie, grpc.StatusCode.PERMISSION_DENIED, "member names till")
        report = discovery_grpc.MemberReportServiceStub(channel).Report()
        await refused(report.read(), grpc.StatusCode.PERMISSION_DENIED, "for the role router")


async def test_meshctl_calls_with_the_certificate_of_its_user(
    secured: World, authority: Authority, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{secured.control.port}"

    async def meshctl(*options: str) -> tuple[int, str]:
        done = await asyncio.to_thread(forked_meshctl().call, ["--address", address, *options], {}, tmp_path)
        return done.returncode, done.stdout + done.stderr

    operator = str(certificate_of(authority, "operator", "otto").folder)
    code, said = await meshctl(
        "rule", "set", "--topic", "apples", "--to", "c1", "--reason", "tls", "--tls-folder", operator
    )
    assert code == 0, said
    assert (await secured.history())[0].actor == "otto"

    code, said = await meshctl("cluster", "remove", "c2", "--tls-folder", operator)
    assert code != 0
    assert "needs the role admin; otto has operator (by its certificate)" in said

    code, said = await meshctl("status")
    assert code != 0
    assert "--tls-folder" in said

    code, said = await meshctl("status", "--tls-folder", "/nowhere")
    assert code != 0
    assert "/nowhere/tls.crt: No such file" in said


async def test_verifiers_of_users_go_to_routers_and_by_them_to_gateways_alone(
    secured: World, authority: Authority, tmp_path: Path
) -> None:
    callers = {
        (role, name): certificate_of(authority, role, name)
        for role, name in (("router", "r1"), ("gateway", "g1"), ("sidecar", "s1"), ("admin", "ada"))
    }
    router = ServiceProcess(
        "router",
        free_block(2),
        tmp_path / "r1.log",
        {
            "NAME": "r1",
            "HOME_BOOTSTRAP_SERVERS": secured.home,
            "EVENTS_TOPIC": secured.settings.events_topic,
            "CONTROL_ADDRESSES": f"127.0.0.1:{secured.control.port}",
            "RPC_TLS_FOLDER": str(callers["router", "r1"].folder),
        },
    )
    router.start()
    try:
        await until(lambda: router.ready() == "ready", "the router is ready")
        for (role, _), caller in callers.items():
            async with open_channel(f"127.0.0.1:{secured.control.port}", caller) as channel:
                read = users_grpc.UserVerifierServiceStub(channel).FollowVerifiers().read()
                await answers(read, "router" if role != "router" else "")
            async with open_channel(router.address, caller) as channel:
                read = users_grpc.UserDiscoveryServiceStub(channel).FollowUsers().read()
                await answers(read, "gateway" if role != "gateway" else "")
    finally:
        await asyncio.to_thread(router.stop)


async def answers(read: Awaitable[Any], needed: str) -> None:
    """The first page of a whole table, or the refusal that names the role that is needed."""
    if needed:
        await refused(read, grpc.StatusCode.PERMISSION_DENIED, needed)
    else:
        assert (await read).whole
