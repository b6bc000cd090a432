"""What a routing table of 10,000 rules costs with 50,000 topics: making it of what a router sends, asking it where a
topic lives and what clients call it, and bringing it from a router to a gateway.

CPU time, but for the push: the machine may be busy with others. Nothing here fails by the clock.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from mesh import re2_expressions
from mesh.lifecycle import Lifecycle
from mesh.routing import (
    ClientIdentity,
    ClientMatch,
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    NameRegex,
    RoutingTable,
    RuleVersion,
    UnmatchedTopics,
    UpstreamCluster,
    plain_text,
)
from mesh.routing.codec import table_from_proto, table_to_proto
from mesh.rpc import discovery, discovery_grpc, routing
from services.gateway.downstream.gateway import Gateway
from services.gateway.settings import GatewaySettings

RULES = 10_000
TOPICS = 50_000
SEED = 5
PUSHED_WITHIN_S = 25.0
CLIENT = ClientIdentity(client_id="team-77-app", software_name="librdkafka", address="10.0.77.1")
"""Some rules are about it, if any are about clients."""

Make = Callable[[int], tuple[Match, str]]


def of_team(number: int) -> ClientMatch:
    return ClientMatch(client_id_prefix=f"team-{number}-")


def mixed(number: int) -> tuple[Match, str]:
    """As a company may have it: half exact names, prefixes, some expressions; one in five for a network of clients."""
    network = ClientMatch(source_networks=(f"10.{number // 256}.{number % 256}.0/24",)) if number % 5 == 4 else None
    match number % 10:
        case 0 | 1 | 2 | 3 | 4:
            return ExactName(f"team-{number}.orders", client=network), ""
        case 5 | 6 | 7:
            return NamePrefix(f"team-{number}.", client=network), ""
        case 8:
            return NamePrefix(f"team-{number}."), "x.{topic}"
        case _:
            return NameRegex(rf"team-{number}\.(orders|bills)", client=network), ""


KINDS: dict[str, tuple[str, Make]] = {
    "exact names": ("team-{}.orders", lambda n: (ExactName(f"team-{n}.orders"), "")),
    "prefixes": ("team-{}.a", lambda n: (NamePrefix(f"team-{n}."), "")),
    "prefixes, renamed": ("team-{}.a", lambda n: (NamePrefix(f"team-{n}."), "x.{topic}")),
    "expressions that begin with text": (
        "team-{}.orders-1",
        lambda n: (NameRegex(rf"team-{n}\.(orders|bills)-.+"), ""),
    ),
    "expressions that do not": ("eu-team-{}.a", lambda n: (NameRegex(rf"(eu|us)-team-{n}\..+"), "")),
    "prefixes, each for some clients": ("team-77.{}", lambda n: (NamePrefix(f"team-{n}.", client=of_team(n)), "")),
    "a default cluster for each tenant": ("orders-{}", lambda n: (UnmatchedTopics(of_team(n)), f"t{n}.{{topic}}")),
    "of every kind": ("team-{}.orders", mixed),
}


def table_of(make: Make, revision: int = 1) -> RoutingTable:
    made = ((number, *make(number)) for number in range(RULES))
    versions = [
        RuleVersion(ForwardingRule(f"r{n}", match, f"c{n % 3 + 1}", upstream_topic=template), float(n), 1)
        for n, match, template in made
    ]
    return RoutingTable(revision, [UpstreamCluster(f"c{n}", (f"127.0.0.1:{n}",), n) for n in (1, 2, 3)], versions)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def first_questions(message: routing.RoutingTable) -> RoutingTable:
    """All that has to be made before a client is served: the table, what the client sees, and every kind of look-up."""
    table = table_from_proto(message)
    seen = table.for_client(CLIENT)
    seen.route("another")
    seen.virtual_topic("c1", "another")
    seen.group_rule("g")
    seen.transaction_rule("t")
    seen.client_rule("librdkafka", "2.10.0")
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_look_ups(kind: str) -> None:
    name, make = KINDS[kind]
    encoded = table_to_proto(table_of(make)).SerializeToString()
    for remembered in (re2_expressions.compiled, plain_text.plain_text):
        remembered.cache_clear()  # as in a gateway that has just started
    compiled, table = seconds(lambda: first_questions(routing.RoutingTable.FromString(encoded)))
    topics = [name.format(number % RULES if name.startswith(("team-{", "eu")) else number) for number in range(TOPICS)]
    different = len(set(topics))

    def ask_all() -> int:
        return sum(table.route(topic) is not None for topic in topics)

    once, found = seconds(ask_all)
    random.Random(SEED).shuffle(topics)
    again, _ = seconds(ask_all)
    there = {topic: route.upstream_topic for topic in topics if (route := table.route(topic)) is not None}
    back, _ = seconds(lambda: [table.virtual_topic(table.cluster_of(topic), there[topic]) for topic in there])
    print(
        f"\n{RULES:,} rules, {kind:<34} compiled in {1000 * compiled:4.0f} ms; {found:,} of {TOPICS:,} look-ups found: "
        f"{1e6 * once / different:5.1f} us at first, {1e6 * again / TOPICS:4.2f} us again, "
        f"{1e6 * back / max(1, len(there)):5.1f} us back"
    )
    assert found


class OneTable(discovery_grpc.DiscoveryServiceServicer):
    """A router that sends a small table, and a large one when it is asked to."""

    def __init__(self) -> None:
        self.large: asyncio.Future[RoutingTable] = asyncio.get_running_loop().create_future()
        self.applied: asyncio.Queue[int] = asyncio.Queue()

    async def Watch(self, requests: AsyncIterator[discovery.WatchRequest], context: Any) -> AsyncIterator[Any]:
        async def hear() -> None:
            async for request in requests:
                if request.HasField("ack"):
                    self.applied.put_nowait(request.ack.revision)

        hearing = asyncio.create_task(hear())
        yield discovery.WatchResponse(apply=routing.RoutingTable(revision=1))
        yield discovery.WatchResponse(apply=table_to_proto(await self.large))
        await hearing


@pytest.mark.parametrize("kind", ["exact names", "of every kind"])
async def test_push(kind: str, tmp_path: Path) -> None:
    """From a table in a router's hands until the gateway has it in force and says so."""
    router, server = OneTable(), grpc.aio.server()
    discovery_grpc.add_DiscoveryServiceServicer_to_server(router, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    values: dict[str, Any] = {
        "listen": ("127.0.0.1:0",),
        "state_dir": tmp_path,
        "router_addresses": (f"127.0.0.1:{port}",),
    }
    gateway = Gateway(GatewaySettings(name="bench", **values), Lifecycle())
    await gateway.start()
    async with asyncio.timeout(PUSHED_WITHIN_S):
        assert await router.applied.get() == 1
        table = table_of(KINDS[kind][1], revision=2)
        began, cpu_began = time.perf_counter(), time.process_time()
        router.large.set_result(table)
        assert await router.applied.get() == 2
    took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    assert gateway.mesh.table.revision == 2
    print(f"\n{RULES:,} rules, {kind}: pushed in {1000 * took:.0f} ms ({1000 * cpu:.0f} ms of CPU on both sides)")
    await gateway.stop()
    await server.stop(None)
