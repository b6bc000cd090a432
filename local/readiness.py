"""Conditions that tell whether a service is ready: asked again and again, each within a bound, with nothing but the
standard library, because container health checks run them every few seconds."""

from __future__ import annotations

import http.client
import socket
import struct
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ATTEMPT_TIMEOUT_S = 3.0

# Metadata v1 for no topic, correlation id 1, no client id: the smallest question whose answer counts brokers.
_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)


class Condition(Protocol):
    def unmet(self) -> str | None:
        """None when the condition holds, else why it does not."""


@dataclass(frozen=True, slots=True)
class HttpReady:
    """`GET url` answers 200."""

    url: str

    def unmet(self) -> str | None:
        parts = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=ATTEMPT_TIMEOUT_S)
        try:
            connection.request("GET", parts.path or "/")
            answer = connection.getresponse()
            body = answer.read(300).decode("utf-8", errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            return f"{self.url}: {error}"
        finally:
            connection.close()
        return None if answer.status == http.client.OK else f"{self.url} answered {answer.status}: {body}"


@dataclass(frozen=True, slots=True)
class KafkaReady:
    """The broker at `address` answers requests and knows of a live broker: itself."""

    address: str

    def unmet(self) -> str | None:
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=ATTEMPT_TIMEOUT_S) as connection:
                connection.settimeout(ATTEMPT_TIMEOUT_S)
                connection.sendall(_METADATA_REQUEST)
                with connection.makefile("rb") as answers:
                    answer = answers.read(12)
        except OSError as error:
            return f"{self.address}: {error}"
        if len(answer) < 12:
            return f"{self.address} closed the connection"
        _, _, brokers = struct.unpack(">iii", answer)
        return None if brokers > 0 else f"{self.address} knows of no live broker yet"


@dataclass(frozen=True, slots=True)
class PostgresReady:
    """The server of this data folder listens, and says `ready` in the file that `pg_ctl` reads.

    Both, because the file outlives a server that was killed.
    """

    data: Path
    address: str

    def unmet(self) -> str | None:
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError as error:
            return str(error)
        status = lines[7].strip() if len(lines) > 7 else "starting"
        return TcpReady(self.address).unmet() if status == "ready" else f"PostgreSQL is {status}"


@dataclass(frozen=True, slots=True)
class TcpReady:
    """Something accepts connections at `address`."""

    address: str

    def unmet(self) -> str | None:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=ATTEMPT_TIMEOUT_S).close()
        except OSError as error:
            return f"{self.address}: {error}"
        return None
