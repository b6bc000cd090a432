"""How long a gateway takes to start from its table on disk, and a newcomer's wait for `kafka-mesh up`: the first start
in a folder, and the next ones, with their state.

Packages and Kafka's jars are there already; what fetching them adds depends on the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from local.layout import STATE_FOLDER
from local.services import PORTS
from mesh.routing import RoutingTable
from services.gateway.downstream import last_table
from services.gateway.downstream.awaited import Awaited
from tests.bench.figures import Sheet, Table, spread
from tests.bench.middles import cpu_s
from tests.bench.test_large_table import PASTS, RULES, large_table
from tests.fixtures.meshes import SPARE_PORTS, running_mesh
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import ServiceProcess

FOLDERS = int(os.environ.get("MESH_BENCH_STARTS", "2"))
GOAL_OF_SECOND_S = 8
NOT_BY_THE_CLOCK = 3600


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_start_times(kafka_jars: None, tmp_path: Path, sheet: Sheet) -> None:
    first: list[float] = []
    second: list[float] = []
    stop: list[float] = []
    for number in range(FOLDERS):
        state = tmp_path / str(number) / STATE_FOLDER
        ports = ("--port-base", str(free_block(len(PORTS) + SPARE_PORTS)))
        for times in (first, second):
            began = time.monotonic()
            with running_mesh(state, *ports):
                times.append(time.monotonic() - began)
                began = time.monotonic()
            stop.append(time.monotonic() - began)
    rows = [
        ["first start: data folders made, database migrated, example applied", spread(first, 1)],
        [f"second start (the goal is under {GOAL_OF_SECOND_S} s)", spread(second, 1)],
        ["stop", spread(stop, 1)],
    ]
    notes = [f"{FOLDERS} folders; until every service is ready, packages and Kafka's jars in their caches"]
    sheet.add(Table("kafka-mesh up", ["what", "seconds"], rows, notes))


STARTS = 5
GOAL_OF_GATEWAY_S = 1


def test_a_gateway_starts_from_its_table_on_disk(tmp_path: Path, sheet: Sheet) -> None:
    """Without a router. A busy machine counts in the seconds, and hardly in those of CPU."""
    tables: dict[str, Callable[[], RoutingTable]] = {
        "a table without rules": RoutingTable,
        f"{RULES:,} rules, pasts of {PASTS:,} other topics": large_table,
    }
    rows = [_started(what, tmp_path / str(number), make()) for number, (what, make) in enumerate(tables.items())]
    notes = [
        f"{STARTS} starts, the first one not counted: it may compile Python; the goal is under {GOAL_OF_GATEWAY_S} s"
    ]
    sheet.add(Table("a gateway, until it is ready", ["table on disk", "s", "CPU s"], rows, notes))


def _started(what: str, state: Path, table: RoutingTable) -> list[str]:
    last_table.save(state, table)
    Awaited(state, "g1").write()
    settings = {"NAME": "g1", "STATE_DIR": str(state), "ROUTER_ADDRESSES": "127.0.0.1:1"}
    gateway = ServiceProcess("gateway", free_block(2), state / "log", settings)
    seconds, cpu = list[float](), list[float]()
    for _ in range(1 + STARTS):
        began = time.monotonic()
        gateway.start()
        wait_until(partial(_is_ready, gateway), "the gateway is ready", NOT_BY_THE_CLOCK)
        seconds.append(time.monotonic() - began)
        cpu.append(cpu_s(psutil.Process(gateway.pid)))
        gateway.stop()
        Awaited(state, "g1").write()
    return [what, spread(seconds[1:], 2), spread(cpu[1:], 2)]


def _is_ready(gateway: ServiceProcess) -> bool:
    return gateway.ready() == "ready"
