"""One control and one router with a thousand light gateways and almost 20,000 rules, the most of a mesh.

What a new rule costs, and how soon all gateways have it: by deltas, and as gateways of older releases get tables.

Beside the cluster of the rules, control knows others that do not answer (`MESH_BENCH_CLUSTERS` are all).
`MESH_BENCH_TABLES` may be `deltas`, because 1,000 whole tables are a gigabyte a change. `MESH_BENCH_MEMBERS` is how
many gateways there are, `MESH_BENCH_RULES` how many rules, `MESH_BENCH_CHANGES` how many are added then.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_channel
from services.control.store.migrate import migrate
from tests.bench.figures import Sheet, Table
from tests.bench.light_members import LightMembers
from tests.bench.middles import cpu_s
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import until, wait_until
from tests.integration.router.parts import ServiceProcess

MEMBERS = int(os.environ.get("MESH_BENCH_MEMBERS", "1000"))
RULES = int(os.environ.get("MESH_BENCH_RULES", "19900"))
CLUSTERS = int(os.environ.get("MESH_BENCH_CLUSTERS", "100"))
CHANGES = int(os.environ.get("MESH_BENCH_CHANGES", "20"))
TABLES = os.environ.get("MESH_BENCH_TABLES", "both")
KINDS = {"both": (True, False), "deltas": (True,), "whole": (False,)}
QUIET_S = 6.0
"""A span in which nobody decides anything; the router reports all members in it."""
CALL_S, ALL_S = 120.0, 300.0
MIB = 1 << 20
HEAD = (
    "tables",
    "all connected, s",
    "CPU s of router, control",
    "quiet, cores of both",
    "a rule to all, ms: median, most",
    "KB a change and gateway",
    "CPU ms a change",
    "MB of both",
)
TITLE = f"{MEMBERS:,} gateways on one router and one control, {RULES:,} rules, {CLUSTERS} clusters"


@pytest.fixture
def services(
    kafka_c1: KafkaCluster, postgres: PostgresServer, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[tuple[ServiceProcess, ServiceProcess]]:
    """Control and a router with a log and a database of their own."""
    home = {"HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap, "EVENTS_TOPIC": unique_name("mesh.events")}
    database = postgres()
    migrate(database)
    control = ServiceProcess("control", free_block(2), tmp_path / "control.log", {**home, "DATABASE_URL": database})
    router = ServiceProcess(
        "router", free_block(2), tmp_path / "router.log", {**home, "NAME": "r1", "CONTROL_ADDRESSES": control.address}
    )
    try:
        for process in (control, router):
            process.start()
            wait_until(partial(_is_ready, process), "it is ready", ALL_S)
        yield control, router
    finally:
        router.stop()
        control.stop()


@pytest.mark.timeout(1200)
async def test_a_rule_for_very_many_members(
    services: tuple[ServiceProcess, ServiceProcess], kafka_c1: KafkaCluster, sheet: Sheet
) -> None:
    control, router = services
    async with open_channel(control.address) as channel:
        rules = admin_grpc.RuleServiceStub(channel)
        spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=[kafka_c1.bootstrap])
        await admin_grpc.ClusterServiceStub(channel).RegisterCluster(admin.RegisterClusterRequest(spec=spec))
        for number in range(1, CLUSTERS):
            spec = routing.ClusterSpec(cluster_name=f"away-{number}", bootstrap_servers=[f"127.0.0.1:{number}"])
            register = admin.RegisterClusterRequest(spec=spec, allow_unreachable=True)
            await admin_grpc.ClusterServiceStub(channel).RegisterCluster(register, timeout=CALL_S)
        specs = [
            routing.RuleSpec(rule_id=f"r{n}", match=routing.RuleMatch(topic=f"orders.of-shop-{n}"), target_cluster="c1")
            for n in range(RULES)
        ]
        replaced = await rules.ReplaceRules(admin.ReplaceRulesRequest(rules=specs), timeout=CALL_S)
        await until(lambda: router.metric("revision") >= replaced.revision, "the router has all rules", ALL_S)
        rows = [await _measured(channel, control, router, reads_deltas=each) for each in KINDS[TABLES]]
    sheet.add(Table(TITLE, HEAD, rows))


async def _measured(
    channel: object, control: ServiceProcess, router: ServiceProcess, *, reads_deltas: bool
) -> list[str]:
    rules = admin_grpc.RuleServiceStub(channel)  # type: ignore[call-overload]
    both = [psutil.Process(router.pid), psutil.Process(control.pid)]
    began, used = time.monotonic(), [*map(cpu_s, both)]
    async with _connected(channel, router, reads_deltas=reads_deltas) as members:
        connected_s, connecting = time.monotonic() - began, _since(both, used)
        used = [*map(cpu_s, both)]
        await asyncio.sleep(QUIET_S)
        quiet = [each / QUIET_S for each in _since(both, used)]
        used, received = [*map(cpu_s, both)], members.received_bytes
        times: list[float] = []
        for number in range(CHANGES):
            request = admin.SetRuleRequest(
                match=routing.RuleMatch(topic=f"new-{reads_deltas}-{number}"), target_cluster="c1"
            )
            decided = time.time()
            revision = (await rules.SetRule(request, timeout=CALL_S)).revision
            await until(lambda revision=revision: members.arrived(revision) == MEMBERS, "all have the rule", ALL_S)  # type: ignore[misc]
            times.append(1000 * (max(members.arrivals[revision]) - decided))
        changing = [1000 * each / CHANGES for each in _since(both, used)]
        sent = (members.received_bytes - received) / CHANGES / MEMBERS / 1000
        memory = [process.memory_info().rss / MIB for process in both]
    return [
        "deltas" if reads_deltas else "whole",
        f"{connected_s:.1f}",
        _pair(connecting, 1),
        _pair(quiet, 2),
        f"{sorted(times)[len(times) // 2]:.0f}, {max(times):.0f}",
        f"{sent:.2f}",
        _pair(changing, 0),
        _pair(memory, 0),
    ]


def _pair(values: list[float], digits: int) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


@asynccontextmanager
async def _connected(channel: object, router: ServiceProcess, *, reads_deltas: bool) -> AsyncIterator[LightMembers]:
    """All members, known to control."""
    decisions = admin_grpc.QueryServiceStub(channel)  # type: ignore[call-overload]

    async def known() -> int:
        status = await decisions.GetStatus(admin.GetStatusRequest(), timeout=CALL_S)
        return sum(each.kind == admin.MEMBER_KIND_GATEWAY for each in status.members)

    async def all_known() -> bool:
        return members.connected == MEMBERS and await known() == MEMBERS

    async with LightMembers(router.address, MEMBERS, reads_deltas=reads_deltas) as members:
        await until(all_known, "control knows all members", ALL_S)
        yield members


def _since(processes: list[psutil.Process], used: list[float]) -> list[float]:
    return [cpu_s(process) - before for process, before in zip(processes, used, strict=True)]


def _is_ready(process: ServiceProcess) -> bool:
    return process.ready() == "ready"
