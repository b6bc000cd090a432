"""Connections of clients that have asked for the versions of APIs, and wait: a process holds as many as it may open.

`python -m tests.bench.idle_connections ADDRESS NETWORK COUNT` writes `held N`, and a reason if there are fewer. Sources
are 127.NETWORK.0.1 and on: an address has ports for some thousand connections alone. All end with standard input.
"""

from __future__ import annotations

import socket
import sys

from mesh import open_files
from services.gateway.wire.frames import SIZE_BYTES, encode_request
from services.gateway.wire.messages import ApiVersionsRequest

OF_A_SOURCE = 5_000
TIMEOUT_S = 30.0
ASKED = encode_request(ApiVersionsRequest(), 0, 1, "idle")


def connected(host: str, port: int, source: str) -> socket.socket:
    """A client that has had its first answer. OSError."""
    client = socket.socket()
    client.settimeout(TIMEOUT_S)
    try:
        client.bind((source, 0))
        client.connect((host, port))
        client.sendall(ASKED)
        left = int.from_bytes(_read(client, SIZE_BYTES), "big")
        _read(client, left)
    except OSError:
        client.close()
        raise
    return client


def _read(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (some := client.recv(size - len(found))):
            raise ConnectionResetError("the gateway ended the connection")
        found += some
    return found


def main() -> None:
    address, network, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    host, _, port = address.rpartition(":")
    open_files.raise_limit()
    held: list[socket.socket] = []
    reason = ""
    try:
        held.extend(
            connected(host, int(port), f"127.{network}.0.{1 + number // OF_A_SOURCE}") for number in range(count)
        )
    except OSError as error:
        reason = f": {error}"
    print(f"held {len(held)}{reason}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
