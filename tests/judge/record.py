"""Records the client tests anew: `python -m tests.judge.record FOLDER CLIENT... [-- PYTEST ARGUMENTS]`.

For each client a fresh broker starts, which advertises a cable's address; the client tests of that client run through
the cable, with the broker as the whole system under test. What goes by is kept as FOLDER/CLIENT.rec.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from judge.faults.cable import Cable
from judge.protocol.connection import Address, address
from judge.replay.recording import Tape
from judge.replay.tapped_cable import TappedCable, carrying
from tests.clients.contract import Acks
from tests.fixtures.clusters import SESSION_MS, KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.running import running

TESTS = ("tests/clients/test_records.py", "tests/clients/test_groups.py", "tests/clients/test_admin.py")
RUN_S = 900.0


@contextmanager
def cabled_broker(folder: Path, make: Callable[[Address, socket.socket], Cable]) -> Iterator[str]:
    """The address of a fresh broker that is reached only through a cable. What it asks itself does not go there.

    `make` makes the cable, from the broker's address and the listener of the cable.
    """
    listener = socket.create_server(("127.0.0.1", free_block(1)))
    seen_at, between = f"127.0.0.1:{listener.getsockname()[1]}", f"127.0.0.1:{free_block(1)}"
    further = folder / "cabled.properties"
    broker = KafkaCluster("cabled", folder / "cabled", further)
    host, port = address(broker.bootstrap)
    lines = (
        f"listeners=PLAINTEXT://{host}:{port},BETWEEN://{between},CONTROLLER://{host}:{port + 1}",
        f"advertised.listeners=PLAINTEXT://{seen_at},BETWEEN://{between}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT",
        "inter.broker.listener.name=BETWEEN",
        f"broker.session.timeout.ms={SESSION_MS}",
        "log.retention.ms=-1",
    )
    further.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    with carrying(make((host, port), listener)), running(broker):
        yield seen_at


def recorded(client: str, to: Path, arguments: Sequence[str]) -> int:
    """The exit code of the client's tests."""
    tape = Tape()
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]

    def make(to: Address, listener: socket.socket) -> Cable:
        return TappedCable(to, tape=tape, _listener=listener)

    with tempfile.TemporaryDirectory() as folder, cabled_broker(Path(folder), make) as bootstrap:
        environment = {**os.environ, "MESH_TEST_BOOTSTRAP": bootstrap}
        command = [*pytest, *(arguments or tests_of(client, pytest))]
        done = subprocess.run(command, env=environment, timeout=RUN_S, check=False)
    to.parent.mkdir(parents=True, exist_ok=True)
    tape.recording({"client": client, "endpoint": "Kafka"}).write(to)
    print(f"{client}: {len(tape.events)} events, {to.stat().st_size} bytes in {to}", flush=True)
    return done.returncode


def tests_of(client: str, pytest: Sequence[str]) -> list[str]:
    """Of the client tests those that run with this client, by its name in tests/clients/registry.py."""
    command = [*pytest, "--collect-only", *TESTS]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=True).stdout
    own = re.compile(rf"[\[-]{re.escape(client)}(-({'|'.join(Acks)}))?\]$")
    return [line for line in listed.splitlines() if own.search(line)]


def main() -> int:
    names, _, arguments = " ".join(sys.argv[1:]).partition(" -- ")
    folder, *clients = names.split()
    codes = [recorded(client, Path(folder) / f"{client}.rec", arguments.split()) for client in clients]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
