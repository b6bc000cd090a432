"""Several gateways at once behind one address, each a process of its own: clients' connections go to them in turn."""

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import cycle
from pathlib import Path

from local.leash import on_leash
from mesh.routing import RoutingTable
from services.gateway.downstream import last_table
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

START_S = STOP_S = 90.0

ANSWER_S = 5.0


@contextmanager
def gateways_side_by_side(
    count: int, folder: Path, table: RoutingTable, started: list[subprocess.Popen[bytes]] | None = None
) -> Iterator[str]:
    """The address under which all of them are found; `started` gets their processes, for a test that kills one."""
    ports = [free_block(2) for _ in range(count)]
    turns = Turns([f"127.0.0.1:{port}" for port in ports])
    processes = [] if started is None else started
    try:
        for number, port in enumerate(ports):
            state = folder / f"gateway-{number}"
            last_table.save(state, table)
            settings = {
                "NAME": f"gateway-{number}",
                "LISTEN": f"127.0.0.1:{port}",
                "ADVERTISED": turns.address,
                "METRICS_LISTEN": f"127.0.0.1:{port + 1}",
                "STATE_DIR": str(state),
            }
            environment = {f"KAFKA_MESH_GATEWAY_{name}": value for name, value in settings.items()}
            command = on_leash([sys.executable, "-m", "services.gateway"])
            processes.append(subprocess.Popen(command, env={**os.environ, **environment}))
        for port in ports:
            wait_until(partial(_is_ready, port + 1), f"the gateway on port {port} is ready", START_S)
        yield turns.address
    finally:
        turns.close()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(STOP_S)


def _is_ready(port: int) -> bool:
    address = f"http://127.0.0.1:{port}/ready"
    with suppress(OSError), urllib.request.urlopen(address, timeout=ANSWER_S) as answer:
        return bool(answer.status == 200)
    return False


class Turns:
    """A load balancer as simple as can be: connections go to the addresses in turn."""

    def __init__(self, addresses: list[str], port: int = 0) -> None:
        """`port`: where to listen; 0 for any."""
        self._addresses, self._count = cycle(addresses), len(addresses)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if (server := self._connected()) is None:  # nobody there: the client tries again
                    client.close()
                    continue
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=(source, sink), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        """To the next address that takes connections."""
        for _ in range(self._count):
            host, _, port = next(self._addresses).rpartition(":")
            with suppress(OSError):
                return socket.create_connection((host, int(port)))
        return None


def _carry(source: socket.socket, sink: socket.socket) -> None:
    """Bytes one way, until the end of either side."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
