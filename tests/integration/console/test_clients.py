"""The page of clients: what the inventory of control has, filtered by the viewer, with addresses for those who may."""

from __future__ import annotations

from mesh.rpc import admin, clients, clients_grpc, discovery
from tests.fixtures.consoles import VIEWER, Consoled
from tests.integration.control.world import CALL, until

GATEWAY = admin.Member(name="members/g1", kind=admin.MEMBER_KIND_GATEWAY)


async def test_who_is_connected_with_what_and_what_each_does(console: Consoled) -> None:
    report = discovery.ClientReport(total=4, kinds=3)
    old = report.clients.add(
        client_id="old-shop", principal="User:alice", software="kafka-python/1.4.7", host="10.0.0.7", connections=2,
        topics=["orders", "returns"], produced=[0, 1], groups=["shop"],
    )  # fmt: skip
    produce = old.apis.add(api="Produce", lowest_version=2, highest_version=2, requests=7, removed_in="4.0")
    produce.errors.add(error="NOT_LEADER_OR_FOLLOWER", answers=3)
    report.clients.add(client_id="new-shop", principal="User:bob", connections=1, topics=["x"], consumed=[0])
    await console.grant("vera", VIEWER)
    stream = console.world.rollouts.Report()
    router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER)
    await stream.write(discovery.RouterReport(router=router, members=[GATEWAY], clients={GATEWAY.name: report}))
    await stream.read()
    inventory = clients_grpc.ClientServiceStub(console.world.channel)

    async def is_known() -> bool:
        return bool((await inventory.ListClients(clients.ListClientsRequest(), timeout=CALL)).clients)

    await until(is_known, "control knows the clients")
    async with console.person("vera") as vera:
        page = await vera.sees("/clients")
        assert "old-shop User:alice kafka-python/1.4.7 g1" in page
        assert "writes orders, returns; group shop" in page
        assert "NOT_LEADER_OR_FOLLOWER 3" in page
        assert "Produce 2 (in 4.0)" in page
        assert "g1 leaves out 1 client with 1 connection: the idlest." in page
        for query, seen, unseen in (
            ("topic=orders", "old-shop", "new-shop"), ("client_id=new-shop", "new-shop", "old-shop"),
            ("with_errors=1", "old-shop", "new-shop"), ("removed_by=4.0", "old-shop", "new-shop"),
            ("principal=User:bob", "new-shop", "old-shop"), ("group=shop", "old-shop", "new-shop"),
        ):  # fmt: skip
            page = await vera.sees(f"/clients?{query}")
            assert f" {seen} User:" in page, query
            assert f" {unseen} User:" not in page, query
        assert "No client is like that." in await vera.sees("/clients?gateway=g2")
    await console.grant("narrow", VIEWER, topic_prefixes=["shop."])
    async with console.person("narrow") as narrow:
        assert "old-shop" not in await narrow.sees("/clients", 403)
    stream.cancel()
