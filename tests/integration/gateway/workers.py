"""A gateway of several processes, and a router that orders moves as routers do: hold on all, then switch."""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Queue

import grpc
import psutil

from local.leash import on_leash
from mesh import durations
from mesh.routing import RoutingTable
from mesh.routing.codec import table_to_proto
from mesh.rpc import admin, discovery, discovery_grpc
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

HELD, APPLIED = admin.MEMBER_PHASE_HELD, admin.MEMBER_PHASE_APPLIED
START_S = STOP_S = 90.0
"""Three processes start beside all that a busy machine has to do."""
HOLD_MS = 20_000
NAME = "of-several"
_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? ([^ ]+)$")


class Router(discovery_grpc.DiscoveryServiceServicer):
    """Every member is told the table in force; `move` exchanges it."""

    def __init__(self, table: RoutingTable) -> None:
        self.table = table
        self.said: dict[str, list[discovery.WatchRequest]] = {}
        """By member, of those that watch now or have watched."""
        self._orders: dict[str, Queue[discovery.WatchResponse | None]] = {}
        self._server = grpc.server(ThreadPoolExecutor(16))
        discovery_grpc.add_DiscoveryServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Watch(
        self, request_iterator: Iterator[discovery.WatchRequest], context: grpc.ServicerContext
    ) -> Iterator[discovery.WatchResponse]:
        member = next(request_iterator).hello.member.name.removeprefix("members/")
        said = self.said[member] = []
        orders: Queue[discovery.WatchResponse | None] = Queue()
        orders.put(discovery.WatchResponse(apply=table_to_proto(self.table)))

        def listen() -> None:
            with suppress(grpc.RpcError):
                said.extend(request_iterator)
            if self._orders.get(member) is orders:
                del self._orders[member]
            orders.put(None)

        self._orders[member] = orders
        threading.Thread(target=listen, daemon=True).start()
        return iter(orders.get, None)

    def move(self, table: RoutingTable) -> None:
        """Returns when all members run it."""
        self.table = table
        hold = discovery.HoldOrder(table=table_to_proto(table), timeout=durations.of_ms(HOLD_MS))
        self._order(discovery.WatchResponse(hold=hold), HELD)
        self._order(discovery.WatchResponse(switch=discovery.SwitchOrder(revision=table.revision)), APPLIED)

    def _order(self, order: discovery.WatchResponse, wanted: int) -> None:
        watching = dict(self._orders)
        for orders in watching.values():
            orders.put(order)
        done = (self.table.revision, wanted)
        wait_until(lambda: all(done in self.acks(member) for member in watching), f"all answer {done}")

    def acks(self, member: str) -> list[tuple[int, int]]:
        return [(word.ack.revision, word.ack.phase) for word in self.said[member] if word.HasField("ack")]

    def close(self) -> None:
        self._server.stop(0)


class RunningWorkers:
    """Starts at once; `close` stops it in order."""

    def __init__(self, folder: Path, workers: int = 2, **settings: str) -> None:
        port = free_block(2)
        self.address = f"127.0.0.1:{port}"
        self._workers = {str(number) for number in range(1, workers + 1)}
        self.management = f"127.0.0.1:{port + 1}"
        self._log = folder / "gateway.log"
        chosen = {
            "NAME": NAME,
            "LISTEN": self.address,
            "METRICS_LISTEN": self.management,
            "STATE_DIR": str(folder / "state"),
            "DRAIN_TIMEOUT_S": "1",
            **settings,
        }
        environment = {f"KAFKA_MESH_GATEWAY_{name}": value for name, value in chosen.items()}
        command = on_leash([sys.executable, "-m", "services.gateway", "--workers", str(workers)])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def pids(self) -> dict[int, int]:
        """Of the workers, by number."""
        found: dict[int, int] = {}
        for child in psutil.Process(self._process.pid).children():
            with suppress(psutil.Error):
                program, _, rest = " ".join(child.cmdline()).partition("workers.worker ")
                if program and rest:
                    found[int(rest.split()[0])] = child.pid
        return found

    def wait_until_ready(self) -> None:
        wait_until(self._is_ready, f"all workers are ready: {self._log}", START_S)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self.log
        with suppress(OSError):
            return bool(urllib.request.urlopen(f"http://{self.management}/ready", timeout=5).status == 200)
        return False

    def metric(self, name: str, **labels: str) -> dict[str, float]:
        """Sums over the series with these labels, by worker."""
        found: dict[str, float] = {}
        for series, told, value in wait_until(self._scraped, "all workers answer a scrape"):
            if series == name and labels.items() <= told.items():
                worker = told.get("worker", "")
                found[worker] = found.get(worker, 0.0) + value
        return found

    def _scraped(self) -> list[tuple[str, dict[str, str], float]] | None:
        """All series; None if a worker did not answer in time and is left out."""
        with urllib.request.urlopen(f"http://{self.management}/metrics", timeout=20) as answer:
            lines = [_SERIES.match(line) for line in answer.read().decode().splitlines()]
        found = [
            (line[1], dict(re.findall(r'(\w+)="([^"]*)"', line[2] or "")), float(line[3])) for line in lines if line
        ]
        heard = {told.get("worker") for series, told, _ in found if series == "kafka_mesh_gateway_table_revision"}
        return found if heard == self._workers else None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Its exit code, when it has ended."""
        return self._process.wait(STOP_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        assert self.ended() in (0, -signal.SIGKILL), self.log


def is_gone(pid: int) -> bool:
    """Ended, and not only to be waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
