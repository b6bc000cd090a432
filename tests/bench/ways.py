"""The ways from a client to the broker that the benchmark compares: direct, through a relay, through the
gateway, through a peer.

Each way that has a process in the middle tells what that process has burnt. All of them listen on loopback and lead to
the same broker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from local.readiness import HttpReady, KafkaReady, TcpReady
from mesh.routing import ForwardingRule, NamePrefix, RoutingTable, RuleVersion, UpstreamCluster
from tests.bench.middles import ROOT, cpu_s, running
from tests.bench.one_table import router_of
from tests.bench.wire.programs import Programs
from tests.clients import maven
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need

KROXYLICIOUS = Path(__file__).parent / "kroxylicious"
KROXYLICIOUS_VERSION = "0.12.0"
KAFKA_OF_KROXYLICIOUS = "4.0.0"  # as its pom.xml says
BROKER_ID = 1  # of the embedded broker
OTHER_RULES = 100
"""A table of some size: a gateway with one rule would be nobody's gateway."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where clients bootstrap, and who stands in the middle."""

    name: str
    bootstrap: str
    middle: psutil.Process | None = None

    def cpu_s(self) -> float:
        """CPU seconds, user and system, that the process in the middle has used so far."""
        return cpu_s(self.middle) if self.middle is not None else 0.0

    def memory_mib(self) -> float:
        return self.middle.memory_info().rss / 2**20 if self.middle is not None else 0.0


def direct(broker: str) -> Way:
    return Way("direct", broker)


@contextmanager
def relay(programs: Programs, port: int, target: int, folder: Path) -> Iterator[Way]:
    """What copies bytes and reads none, from one port to the other: the floor of what a hop costs."""
    command = [str(programs.relay), str(port), str(target)]
    with running(command, folder / "relay.log", TcpReady(f"127.0.0.1:{port}"), {}) as process:
        yield Way("relay", f"127.0.0.1:{port}", process)


@contextmanager
def gateway(broker: str, topics: str, folder: Path) -> Iterator[Way]:
    """The gateway by itself, with a table that sends topics with this prefix to the broker."""
    with gateway_of(_table(broker, topics), folder) as way:
        yield way


@contextmanager
def gateway_of(
    table: RoutingTable,
    folder: Path,
    name: str = "gateway",
    environment: Mapping[str, str] | None = None,
    sources: Path = ROOT,
) -> Iterator[Way]:
    """The gateway by itself, with this table from a router, and these settings beside the usual ones."""
    port = free_block(2)
    ready = HttpReady(f"http://127.0.0.1:{port + 1}/ready")
    command = [sys.executable, "-m", "services.gateway"]
    with ExitStack() as stack:
        usual = {
            "LISTEN": f"127.0.0.1:{port}",
            "METRICS_LISTEN": f"127.0.0.1:{port + 1}",
            "STATE_DIR": str(folder / "gateway"),
            "ROUTER_ADDRESSES": stack.enter_context(router_of(table)),
        }
        settings = {f"KAFKA_MESH_GATEWAY_{key}": value for key, value in {**usual, **(environment or {})}.items()}
        settings["PYTHONPATH"] = f"{sources}{os.pathsep}{ROOT}"
        process = stack.enter_context(running(command, folder / "gateway.log", ready, settings, sources))
        yield Way(name, f"127.0.0.1:{port}", process)


def _table(broker: str, topics: str) -> RoutingTable:
    prefixes = [*(f"{topics}-elsewhere-{number}-" for number in range(OTHER_RULES)), topics]
    rules = [
        RuleVersion(ForwardingRule(f"r-{rank}", NamePrefix(prefix), "c1"), float(rank), 1)
        for rank, prefix in enumerate(prefixes)
    ]
    return RoutingTable(1, [UpstreamCluster("c1", (broker,), 1, home=True)], rules)


@contextmanager
def kroxylicious(broker: str, folder: Path) -> Iterator[Way]:
    """Kroxylicious as it comes: no filters, a port for each broker."""
    class_path = maven.class_path(KROXYLICIOUS, KAFKA_OF_KROXYLICIOUS)
    port = free_block(2)  # bootstrap, and the broker's
    configuration = folder / "kroxylicious.yaml"
    configuration.write_text(
        f"""\
virtualClusters:
  - name: peer
    targetCluster: {{bootstrapServers: "{broker}"}}
    gateways:
      - name: default
        portIdentifiesNode:
          bootstrapAddress: "127.0.0.1:{port}"
          nodeIdRanges: [{{name: nodes, start: {BROKER_ID}, end: {BROKER_ID}}}]
"""
    )
    options = ["-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]
    command = [str(need("java")[0]), *options, "mesh.bench.Kroxylicious", str(configuration)]
    ready = KafkaReady(f"127.0.0.1:{port}")
    with running(command, folder / "kroxylicious.log", ready, {}) as process:
        yield Way(f"Kroxylicious {KROXYLICIOUS_VERSION}", f"127.0.0.1:{port}", process)
