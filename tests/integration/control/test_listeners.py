"""Listeners as gateways report them, beside what control has decided; by role."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from mesh.rpc import admin, discovery, discovery_grpc, listeners, listeners_grpc
from mesh.rpc.channels import open_channel
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.integration.control.world import CALL, World, refused, until

GATEWAY = admin.Member(name="members/g1", kind=admin.MEMBER_KIND_GATEWAY)
ROUTER = admin.Member(name="members/r1", kind=admin.MEMBER_KIND_ROUTER, table_format=7)


@pytest.fixture
async def secured(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority
) -> AsyncIterator[World]:
    folder = certificate_of(authority, "control", "control-1").folder
    made = World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder)
    made.caller = certificate_of(authority, "admin", "ada")
    async with made as world:
        yield world


def closed(name: str) -> listeners.ChangeListenersRequest:
    change = listeners.ListenerChange(name=name, listener=listeners.Listener(name=name, closed=True))
    return listeners.ChangeListenersRequest(changes=[change], reason="all clients log in")


async def test_a_decision_is_an_admins_and_is_shown_with_the_gateways(secured: World, authority: Authority) -> None:
    address = f"127.0.0.1:{secured.control.port}"
    ada = listeners_grpc.ListenerServiceStub(secured.channel)
    async with open_channel(address, certificate_of(authority, "operator", "otto")) as channel:
        otto = listeners_grpc.ListenerServiceStub(channel)
        await refused(otto.ChangeListeners(closed("plain"), timeout=CALL), grpc.StatusCode.PERMISSION_DENIED, "admin")
    await secured.changes.Freeze(admin.FreezeRequest(reason="inventory"), timeout=CALL)
    frozen = grpc.StatusCode.FAILED_PRECONDITION, "meshctl thaw"
    await refused(ada.ChangeListeners(closed("plain"), timeout=CALL), *frozen)
    await secured.changes.Thaw(admin.ThawRequest(reason="counted"), timeout=CALL)
    made = await ada.ChangeListeners(closed("plain"), timeout=CALL)
    assert [each.name for each in made.changed] == ["plain"]
    async with open_channel(address, certificate_of(authority, "router", "r1")) as channel:
        stream = discovery_grpc.MemberReportServiceStub(channel).Report()
        report = discovery.ClientReport()
        report.listeners.add(name="plain", address="PLAINTEXT://h:1", fault="control has closed it", decided=True)
        await stream.write(discovery.RouterReport(router=ROUTER, members=[GATEWAY], clients={GATEWAY.name: report}))

        async def is_told() -> bool:
            return bool((await ada.ListListeners(listeners.ListListenersRequest(), timeout=CALL)).gateways)

        await until(is_told, "control knows the gateway's listeners")
        found = await ada.ListListeners(listeners.ListListenersRequest(listener="plain"), timeout=CALL)
        assert [each.closed for each in found.listeners] == [True]
        assert [(each.gateway, each.listener.fault) for each in found.gateways] == [("g1", "control has closed it")]
        past = await ada.ListListeners(listeners.ListListenersRequest(at_revision=made.revision), timeout=CALL)
        assert not past.gateways
        stream.cancel()
