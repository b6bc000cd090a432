"""The clusters of the wire bench: sinks, one of them behind TLS if a way wants it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from local.readiness import TcpReady
from mesh.routing import UpstreamCluster
from tests.bench.middles import running
from tests.bench.wire.programs import Programs
from tests.bench.wire.workloads import PARTITIONS
from tests.fixtures.certificates import Authority
from tests.fixtures.ports import free_block

LOG_RECORDS, LOG_VALUE_BYTES = 16, 1024
"""Of the batches that Fetch is answered with."""


@dataclass(frozen=True, slots=True)
class Sink:
    port: int
    """Where clients come."""
    processes: tuple[psutil.Process, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of connections to it."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def as_cluster(self, name: str, ordinal: int) -> UpstreamCluster:
        return UpstreamCluster(
            name,
            (self.address,),
            ordinal,
            producer_config=self.properties,
            consumer_config=self.properties,
            home=ordinal == 1,
        )


def can_have_tls() -> bool:
    """Certificates are made by openssl."""
    return shutil.which("openssl") is not None


@contextmanager
def sink(programs: Programs, core: int, log: Path, advertised: int | None = None) -> Iterator[Sink]:
    """`advertised`: the port that it tells clients, if that is not its own."""
    port = free_block(1)
    words = [port, advertised or port, core, PARTITIONS, LOG_RECORDS, LOG_VALUE_BYTES]
    with running([str(programs.sink), *map(str, words)], log, TcpReady(f"127.0.0.1:{port}"), {}) as process:
        yield Sink(port, (process,))


@contextmanager
def tls_sink(programs: Programs, core: int, folder: Path) -> Iterator[Sink]:
    authority = Authority(folder)
    signed = authority.sign("sink")
    port = free_block(1)
    with ExitStack() as stack:
        plain = stack.enter_context(sink(programs, core, folder / "sink.log", port))
        words = [port, plain.port, signed.certificate, signed.key]
        command = [sys.executable, "-m", "tests.bench.wire.tls_front", *map(str, words)]
        ready = TcpReady(f"127.0.0.1:{port}")
        front = stack.enter_context(running(command, folder / "front.log", ready, {}))
        properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
        yield Sink(port, (*plain.processes, front), properties)
