"""The cost of quiet clients to a gateway host: memory, CPU, and how soon a new client has its first answer.

Clients and the gateway share the machine. `MESH_BENCH_CONNECTIONS` is how many there are in the end,
`MESH_BENCH_WORKERS` how many processes serve them: each may open as many files as the system allows.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from mesh.routing import RoutingTable
from services.gateway.downstream import last_table
from tests.bench.figures import Sheet, Table, spread
from tests.bench.idle_connections import connected
from tests.bench.middles import cpu_s
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import ServiceProcess

CONNECTIONS = int(os.environ.get("MESH_BENCH_CONNECTIONS", "50000"))
WORKERS = int(os.environ.get("MESH_BENCH_WORKERS", "4"))
STEPS = 5
QUIET_S = 10.0
PROBES = 50
MIB = 1 << 20
BESIDE = 500
"""Files that a process of clients opens beside its connections, at most."""
HEAD = ("clients", "until all have an answer, s", "CPU ms each", "KiB each", "quiet, cores", "a new client, ms")


@pytest.mark.timeout(1800)
def test_quiet_clients_of_one_host(tmp_path: Path, sheet: Sheet) -> None:
    last_table.save(tmp_path, RoutingTable())
    settings = {"NAME": "g1", "STATE_DIR": str(tmp_path), "ROUTER_ADDRESSES": "", "WORKERS": str(WORKERS)}
    gateway = ServiceProcess("gateway", free_block(2), tmp_path / "log", settings)
    gateway.start()
    holders: list[subprocess.Popen[str]] = []
    rows: list[list[str]] = []
    notes = [f"{WORKERS} workers; a process may open {resource.getrlimit(resource.RLIMIT_NOFILE)[1]:,} files"]
    try:
        wait_until(partial(_is_ready, gateway), "the gateway is ready", 120)
        parts = _processes(gateway)
        empty, held = _memory(parts), 0
        while held < CONNECTIONS:
            rows.append(_step(gateway, parts, empty, holders, held := held + CONNECTIONS // STEPS, notes))
            if len(notes) > 1:
                break
    finally:
        for holder in holders:
            holder.communicate()
        gateway.stop()
    sheet.add(Table(f"{CONNECTIONS:,} quiet clients of a gateway", HEAD, rows, notes))


def _step(
    gateway: ServiceProcess,
    parts: list[psutil.Process],
    empty: int,
    holders: list[subprocess.Popen[str]],
    wanted: int,
    notes: list[str],
) -> list[str]:
    count = CONNECTIONS // STEPS
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - BESIDE
    began, used = time.monotonic(), sum(map(cpu_s, parts))
    new: list[subprocess.Popen[str]] = []
    for first in range(0, count, most):
        command = [sys.executable, "-m", "tests.bench.idle_connections", gateway.address]
        command += [str(len(holders) + len(new) + 1), str(min(most, count - first))]
        new.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    holders += new
    for holder in new:
        assert holder.stdout is not None
        told = holder.stdout.readline().strip()
        if ":" in told:
            notes.append(f"before {wanted:,}: {told}")
    took, cost = time.monotonic() - began, sum(map(cpu_s, parts)) - used
    used = sum(map(cpu_s, parts))
    time.sleep(QUIET_S)
    quiet = (sum(map(cpu_s, parts)) - used) / QUIET_S
    host, _, port = gateway.address.rpartition(":")
    probes = []
    for _ in range(PROBES):
        began = time.perf_counter()
        connected(host, int(port), "127.0.0.1").close()
        probes.append(1000 * (time.perf_counter() - began))
    each = (_memory(parts) - empty) / wanted / 1024
    return [
        f"{wanted:,}",
        f"{took:.1f}",
        f"{1000 * cost / count:.2f}",
        f"{each:.1f}",
        f"{quiet:.2f}",
        spread(probes, 1),
    ]


def _processes(gateway: ServiceProcess) -> list[psutil.Process]:
    supervisor = psutil.Process(gateway.pid)
    return [supervisor, *supervisor.children(recursive=True)]


def _memory(parts: list[psutil.Process]) -> int:
    """Bytes; what processes share counts once."""
    return sum(each.memory_full_info().pss for each in parts)


def _is_ready(gateway: ServiceProcess) -> bool:
    return gateway.ready() == "ready"
