"""The inventory of clients, as a router reports it: in pages, with those left out, and addresses for those who may."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from mesh.rpc import admin, clients, clients_grpc, discovery, discovery_grpc
from mesh.rpc.channels import open_channel
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.integration.control.world import CALL, World, refused, until

KINDS = 5
GATEWAY = admin.Member(name="members/g1", kind=admin.MEMBER_KIND_GATEWAY)


@pytest.fixture
async def secured(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority
) -> AsyncIterator[World]:
    """A control that shows the addresses of clients to operators."""
    folder = certificate_of(authority, "control", "control-1").folder
    made = World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder, client_addresses="operator")
    made.caller = certificate_of(authority, "admin", "ada")
    async with made as world:
        yield world


async def test_clients_come_in_pages_with_addresses_for_operators(secured: World, authority: Authority) -> None:
    address = f"127.0.0.1:{secured.control.port}"
    report = discovery.ClientReport(total=12, kinds=KINDS + 2)
    for number in range(KINDS):
        report.clients.add(client_id=f"client-{number}", principal="User:alice", host="10.0.0.7", connections=2)
    async with open_channel(address, certificate_of(authority, "router", "r1")) as channel:
        stream = discovery_grpc.MemberReportServiceStub(channel).Report()
        router = admin.Member(name="members/r1", kind=admin.MEMBER_KIND_ROUTER)
        await stream.write(discovery.RouterReport(router=router, members=[GATEWAY], clients={GATEWAY.name: report}))
        await stream.read()
        async with open_channel(address, certificate_of(authority, "viewer", "vera")) as viewing:
            viewer = clients_grpc.ClientServiceStub(viewing)
            operator = clients_grpc.ClientServiceStub(secured.channel)

            async def is_told() -> bool:
                return bool((await operator.ListClients(clients.ListClientsRequest(), timeout=CALL)).clients)

            await until(is_told, "control knows the clients")
            pages: list[clients.ListClientsResponse] = []
            request = clients.ListClientsRequest(page_size=2)
            while not pages or request.page_token:
                pages.append(await operator.ListClients(request, timeout=CALL))
                request.page_token = pages[-1].next_page_token
            assert [len(page.clients) for page in pages] == [2, 2, 1]
            found = [each for page in pages for each in page.clients]
            assert [each.client_id for each in found] == [f"client-{number}" for number in range(KINDS)]
            assert {(each.gateway, each.address) for each in found} == {("g1", "10.0.0.7")}
            (left_out,) = pages[0].left_out
            assert (left_out.gateway, left_out.kinds, left_out.connections) == ("g1", 2, 2)

            shown = await viewer.ListClients(clients.ListClientsRequest(), timeout=CALL)
            assert (shown.addresses_hidden, {each.address for each in shown.clients}) == (True, {""})
            request = clients.ListClientsRequest(client_id="client-1", page_token=pages[0].next_page_token)
            await refused(
                viewer.ListClients(request, timeout=CALL), grpc.StatusCode.INVALID_ARGUMENT, "not a token of this list"
            )
        stream.cancel()
