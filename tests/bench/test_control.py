"""The cost of changes of a large rule set for control: over gRPC, with a real PostgreSQL behind it.

Each command goes the whole way: the call, the decision, the event with its tables in one transaction, the answer, the
audit. CPU is that of the process of control. `MESH_BENCH_RULES` is how many rules there are (20,000).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_channel
from services.control.store.migrate import migrate
from tests.bench.figures import Sheet, Table
from tests.bench.insert_server import METHOD
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import ServiceProcess

RULES = int(os.environ.get("MESH_BENCH_RULES", "20000"))
"""As many as a mesh may have."""
CREATED = min(2_000, RULES // 2)
EDITS = 200
AMONG_MANY = 40
"""Commands one by one behind many rules, where each costs ten times as much: the bench has to end on a busy machine."""
CALLERS = 50
WITHIN_S = 60.0
NOT_BY_THE_CLOCK = 3600
COLUMNS = ["what", "commands", "seconds", "CPU of control, s", "ms of CPU each", "others waited, ms"]
NOTES = ["the last column: the longest that somebody else waited for the status meanwhile, ms"]


@dataclass(slots=True)
class Cost:
    """The cost of some commands together."""

    commands: int
    process: psutil.Process
    seconds: float = 0.0
    cpu: float = 0.0
    stalls: list[float] = field(default_factory=list)
    """How long somebody waited who only asked something, each."""

    def row(self, what: str) -> list[str]:
        each = 1000 * self.cpu / self.commands
        longest = f"{1000 * max(self.stalls):.0f}" if self.stalls else ""
        return [what, str(self.commands), f"{self.seconds:.2f}", f"{self.cpu:.2f}", f"{each:.2f}", longest]


@pytest.fixture
def control(
    kafka_c1: KafkaCluster, postgres: PostgresServer, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[ServiceProcess]:
    database = postgres()
    migrate(database)
    settings = {
        "HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap,
        "EVENTS_TOPIC": unique_name("mesh.events"),
        "DATABASE_URL": database,
        "LOG_LEVEL": "WARNING",
    }
    process = ServiceProcess("control", free_block(2), tmp_path / "control.log", settings)
    process.start()
    wait_until(partial(is_ready, process), "control is ready", WITHIN_S)
    yield process
    process.stop()


def is_ready(process: ServiceProcess) -> bool:
    return process.ready() == "ready"


class Operator:
    """An operator who changes the rules, while another client asks for the status all the time."""

    def __init__(self, channel: Any, pid: int) -> None:
        self.clusters = admin_grpc.ClusterServiceStub(channel)
        self.rules = admin_grpc.RuleServiceStub(channel)
        self._decisions = admin_grpc.QueryServiceStub(channel)
        self._process = psutil.Process(pid)

    async def costs(self, commands: int, work: Callable[[], Awaitable[object]]) -> Cost:
        cost = Cost(commands, self._process)
        asking = asyncio.create_task(self._ask(cost))
        with measured(cost):
            await work()
        asking.cancel()
        return cost

    async def one_by_one(self, requests: list[tuple[Callable[..., Awaitable[object]], Any]]) -> Cost:
        async def work() -> None:
            for call, request in requests:
                await call(request, timeout=WITHIN_S)

        return await self.costs(len(requests), work)

    async def by_many(self, requests: list[tuple[Callable[..., Awaitable[object]], Any]]) -> Cost:
        """The same by `CALLERS` callers at a time."""
        left = iter(requests)

        async def one() -> None:
            for call, request in left:
                await call(request, timeout=WITHIN_S)

        async def work() -> None:
            await asyncio.gather(*(one() for _ in range(CALLERS)))

        return await self.costs(len(requests), work)

    async def _ask(self, cost: Cost) -> None:
        while True:
            began = time.monotonic()
            await self._decisions.GetStatus(admin.GetStatusRequest(), timeout=WITHIN_S)
            cost.stalls.append(time.monotonic() - began)
            await asyncio.sleep(0.1)


@contextmanager
def measured(cost: Cost) -> Iterator[None]:
    before, began = cost.process.cpu_times(), time.monotonic()
    yield
    after = cost.process.cpu_times()
    cost.seconds = time.monotonic() - began
    cost.cpu = after.user + after.system - before.user - before.system


def spec(number: int, target: str = "c1") -> routing.RuleSpec:
    """As companies have them: nine topics by their names, one prefix."""
    name = f"division-{number % 20}.team-{number % 400}.orders-{number}"
    match = routing.RuleMatch(topic_prefix=f"{name}.") if number % 10 == 9 else routing.RuleMatch(topic=name)
    return routing.RuleSpec(rule_id=f"r{number}", match=match, target_cluster=target)


@contextmanager
def insert_server(postgres: PostgresServer) -> Iterator[tuple[str, int]]:
    """The address and the process id of a server that inserts one row for each call, and does nothing else."""
    address = f"127.0.0.1:{free_block(1)}"
    command = [sys.executable, "-m", "tests.bench.insert_server", address, postgres()]
    with subprocess.Popen(command) as process:
        try:
            yield address, process.pid
        finally:
            process.terminate()


async def register_clusters(operator: Operator, kafka: KafkaCluster) -> None:
    for name, address in (("c1", kafka.bootstrap), ("c2", "127.0.0.1:1")):
        one = routing.ClusterSpec(cluster_name=name, bootstrap_servers=[address])
        request = admin.RegisterClusterRequest(spec=one, allow_unreachable=True)
        await operator.clusters.RegisterCluster(request, timeout=WITHIN_S)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
@pytest.mark.parametrize("callers", [1, CALLERS])
async def test_single_creates(
    control: ServiceProcess, kafka_c1: KafkaCluster, postgres: PostgresServer, sheet: Sheet, callers: int
) -> None:
    rows: list[list[str]] = []
    with insert_server(postgres) as (address, pid):
        async with open_channel(address) as channel:
            insert: Any = channel.unary_unary(METHOD)
            await insert(b"", timeout=WITHIN_S, wait_for_ready=True)
            cost = Cost(EDITS, psutil.Process(pid))
            with measured(cost):
                for _ in range(EDITS):
                    await insert(b"", timeout=WITHIN_S)
    rows.append(cost.row("an empty call that inserts one row, with the same libraries"))
    async with open_channel(control.address) as channel:
        operator = Operator(channel, control.pid)
        await register_clusters(operator, kafka_c1)
        for start in range(0, CREATED, CREATED // 4):
            some = [spec(number) for number in range(start, start + CREATED // 4)]
            creates = [(operator.rules.CreateRule, admin.CreateRuleRequest(rule=each)) for each in some]
            cost = await (operator.one_by_one(creates) if callers == 1 else operator.by_many(creates))
            rows.append(cost.row(f"creates behind {start:,} rules"))
    sheet.add(Table(f"{CREATED:,} single creates from an empty rule set, callers: {callers}", COLUMNS, rows, NOTES))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
async def test_commands(control: ServiceProcess, kafka_c1: KafkaCluster, sheet: Sheet) -> None:
    specs = [spec(number) for number in range(RULES)]
    rows: list[list[str]] = []
    async with open_channel(control.address) as channel:
        operator = Operator(channel, control.pid)
        rules = operator.rules
        await register_clusters(operator, kafka_c1)

        async def all_of(wanted: list[routing.RuleSpec]) -> Cost:
            return await operator.one_by_one([(rules.ReplaceRules, admin.ReplaceRulesRequest(rules=wanted))])

        rows.append((await all_of(specs)).row(f"Replace: {RULES:,} rules that are new"))
        rows.append((await all_of(specs)).row(f"Replace: {RULES:,} rules that are there"))
        edits = [
            admin.RuleEdit(set=admin.SetRuleRequest(match=each.match, target_cluster=each.target_cluster))
            for each in specs
        ]
        many = [(rules.ChangeRules, admin.ChangeRulesRequest(edits=edits))]
        rows.append((await operator.one_by_one(many)).row(f"{RULES:,} sets of known rules in one call"))
        gone = [admin.RemoveRuleRequest(name=f"rules/{each.rule_id}") for each in specs[-CREATED:]]
        removes = await operator.one_by_one([(rules.RemoveRule, each) for each in gone[:AMONG_MANY]])
        rows.append(removes.row("removes, one by one (moves: held, then switched)"))
        left = [admin.RuleEdit(remove=each) for each in gone[AMONG_MANY:]]
        rest = [(rules.ChangeRules, admin.ChangeRulesRequest(edits=left))]
        rows.append((await operator.one_by_one(rest)).row(f"{len(left):,} removes in one call"))
        creates = [(rules.CreateRule, admin.CreateRuleRequest(rule=each)) for each in specs[-AMONG_MANY:]]
        rows.append((await operator.one_by_one(creates)).row(f"creates, one by one, behind {RULES - CREATED:,} rules"))
        known = [
            (rules.SetRule, admin.SetRuleRequest(match=each.match, target_cluster=each.target_cluster))
            for each in specs[:AMONG_MANY]
        ]
        rows.append((await operator.one_by_one(known)).row("sets that change nothing, one by one"))
    sheet.add(Table(f"Changes of {RULES:,} rules in control", COLUMNS, rows, NOTES))
