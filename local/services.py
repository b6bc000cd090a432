"""The table of services: the kind, start command, needs and readiness of each.

`kafka-mesh up` runs this table; a test compares it with docker-compose.yml. Texts hold placeholders (`{gateway}`)
that `Layout.facts` fills with addresses, so that a whole mesh moves to other ports without a change here.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

HOST = "127.0.0.1"
EMBEDDED_CLUSTERS = ("c1", "c2")
HOME_CLUSTER = EMBEDDED_CLUSTERS[0]
TLS_SETTING = "RPC_TLS_FOLDER"
"""The setting of each service that speaks gRPC: the folder of its certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One row. A row without a readiness is a step: it runs once, and is done when it exits with 0."""

    name: str
    what: str
    """For people, in one or two words."""
    module: str
    """`python -m` this ..."""
    arguments: tuple[str, ...] = ()
    """... with these."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables."""
    needs: tuple[str, ...] = ()
    """Services that are ready (steps: done) before this one starts."""
    ready: str = ""
    """`http://...` answers 200, `kafka://...` answers, `postgres://...` accepts work."""
    address: str = ""
    """The address for users."""
    ports: tuple[str, ...] = ()
    """Names of the ports that it listens on (`Layout.ports`)."""
    stop_signal: signal.Signals = signal.SIGTERM
    start_timeout_s: float = 60.0
    stop_timeout_s: float = 15.0

    @property
    def is_step(self) -> bool:
        return not self.ready


def _kafka(cluster: str) -> Service:
    name = f"kafka-{cluster}"
    ports = ("--port", f"{{{name}.port}}", "--controller-port", f"{{{name}-controller.port}}")
    return Service(
        name=name,
        what=f"Kafka cluster {cluster}",
        module="local.kafka",
        arguments=(f"{{state}}/{name}", *ports),
        needs=("jars",),
        ready=f"kafka://{{{name}}}",
        address=f"{{{name}}}",
        ports=(name, f"{name}-controller"),
        start_timeout_s=120.0,
        stop_timeout_s=30.0,
    )


def _mesh_service(name: str, what: str, *, settings: Mapping[str, str], needs: tuple[str, ...]) -> Service:
    prefix = f"KAFKA_MESH_{name.upper()}_"
    own = {
        "LISTEN": f"{{{name}}}",
        "METRICS_LISTEN": f"{{{name}-metrics}}",
        TLS_SETTING: f"{{certificates}}/{name}",
        **settings,
    }
    return Service(
        name=name,
        what=what,
        module="local.cli",
        arguments=(name,),
        settings={prefix + key: value for key, value in own.items()},
        needs=needs,
        ready=f"http://{{{name}-metrics}}/ready",
        address=f"{{{name}}}",
        ports=(name, f"{name}-metrics"),
    )


SERVICES: tuple[Service, ...] = (
    Service(
        name="certificates",
        what="certificates",
        module="local.cli",
        arguments=("certificates",),
        settings={"KAFKA_MESH_CERTIFICATES_FOLDER": "{certificates}", "KAFKA_MESH_CERTIFICATES_OWNERS": "{owners}"},
    ),
    Service(name="jars", what="Kafka's jars", module="local.jars", start_timeout_s=600.0),
    Service(
        name="postgres",
        what="PostgreSQL",
        module="local.postgres",
        arguments=("{state}/postgres", "--port", "{postgres.port}"),
        ready="postgres://{postgres}/{state}/postgres/data",
        address="{postgres}",
        ports=("postgres",),
        stop_signal=signal.SIGINT,
    ),
    *(_kafka(cluster) for cluster in EMBEDDED_CLUSTERS),
    Service(
        name="migrate",
        what="database schema",
        module="local.cli",
        arguments=("migrate",),
        settings={"KAFKA_MESH_CONTROL_DATABASE_URL": "{database_url}"},
        needs=("postgres",),
    ),
    _mesh_service(
        "control",
        "control plane, gRPC",
        settings={"DATABASE_URL": "{database_url}", "HOME_BOOTSTRAP_SERVERS": "{home}"},
        needs=("certificates", "migrate", f"kafka-{HOME_CLUSTER}"),
    ),
    _mesh_service(
        "router",
        "router, gRPC",
        settings={
            "NAME": "router-1",
            "HOME_BOOTSTRAP_SERVERS": "{home}",
            "CONTROL_ADDRESSES": "{control}",
        },
        needs=("control",),
    ),
    _mesh_service(
        "gateway",
        "gateway, Kafka",
        settings={
            "NAME": "gateway-1",
            "ADVERTISED": "{gateway}",
            "ROUTER_ADDRESSES": "{routers}",
            "STATE_DIR": "{state}/gateway",
            "HOME_BOOTSTRAP_SERVERS": "{home}",
        },
        needs=("router",),
    ),
    Service(
        name="example",
        what="clusters and rules",
        module="local.example",
        arguments=("--control", "{control}", "--tls-folder", "{admin}", "--parts", "{parts}", "{clusters}"),
        needs=("gateway", *(f"kafka-{cluster}" for cluster in EMBEDDED_CLUSTERS)),
    ),
    _mesh_service(
        "sidecar",
        "sidecar, HTTP",
        settings={
            "NAME": "sidecar-1",
            "BOOTSTRAP_SERVERS": "{gateway}",
            "CONTROL_ADDRESSES": "{control}",
            "STATE_DIR": "{state}/sidecar",
            "HOME_BOOTSTRAP_SERVERS": "{home}",
            "AUDIT_TARGET": "topic",
        },
        needs=("example", "gateway", "control"),
    ),
    Service(
        name="console",
        what="console, in a browser",
        module="local.cli",
        arguments=("console",),
        settings={
            "KAFKA_MESH_CONSOLE_LISTEN": "{console}",
            "KAFKA_MESH_CONSOLE_METRICS_LISTEN": "{console-metrics}",
            "KAFKA_MESH_CONSOLE_CONTROL_ADDRESS": "{control}",
            f"KAFKA_MESH_CONSOLE_{TLS_SETTING}": "{certificates}/console",
            "KAFKA_MESH_CONSOLE_GATEWAY_ADDRESS": "{gateway}",
            "KAFKA_MESH_CONSOLE_GATEWAY_PROTOCOL": "plaintext",
            "KAFKA_MESH_CONSOLE_SIDECAR_URL": "http://{sidecar}",
        },
        needs=("control",),
        ready="http://{console-metrics}/ready",
        address="http://{console}",
        ports=("console", "console-metrics"),
    ),
    Service(
        name="pipeline",
        what="pipeline, Spark",
        module="local.cli",
        arguments=("pipeline", "serve"),
        settings={
            "KAFKA_MESH_PIPELINE_NAME": "pipeline-1",
            "KAFKA_MESH_PIPELINE_METRICS_LISTEN": "{pipeline-metrics}",
            f"KAFKA_MESH_PIPELINE_{TLS_SETTING}": "{certificates}/pipeline",
            "KAFKA_MESH_PIPELINE_BOOTSTRAP_SERVERS": "{gateway}",
            "KAFKA_MESH_PIPELINE_CONTROL_ADDRESSES": "{control}",
            "KAFKA_MESH_PIPELINE_DATABASE_URL": "{database_url}",
            "KAFKA_MESH_PIPELINE_JOBS": "audit,traffic",
            "KAFKA_MESH_PIPELINE_AUDIT_FOLDER": "{state}/pipeline/audit",
            "KAFKA_MESH_PIPELINE_STATE_DIR": "{state}/pipeline",
        },
        needs=("example", "gateway", "control"),
        ready="http://{pipeline-metrics}/ready",
        address="{pipeline-metrics}",
        ports=("pipeline-metrics",),
        stop_timeout_s=40.0,
    ),
)
"""`pipeline` is there where Spark can run: see `spark.py`."""

PORTS: Mapping[str, int] = {
    "gateway": 19092,
    "sidecar": 8084,
    "control": 7070,
    "router": 7071,
    "console": 8090,
    "control-metrics": 7170,
    "router-metrics": 7171,
    "gateway-metrics": 7172,
    "sidecar-metrics": 7173,
    "pipeline-metrics": 7174,
    "console-metrics": 7175,
    "postgres": 15432,
    "kafka-c1": 19193,
    "kafka-c1-controller": 19194,
    "kafka-c2": 19293,
    "kafka-c2-controller": 19294,
}
"""Every port of the embedded mesh, by name, with its default."""

REPLICA_STEP = 10
"""The second gateway listens ten ports above the first, and so on."""


def with_replicas(rows: tuple[Service, ...], counts: Mapping[str, int]) -> tuple[Service, ...]:
    """The table with `counts[name]` instances of a service: `gateway`, `gateway-2`, ..."""
    numbers = {row.name: range(2, counts.get(row.name, 1) + 1) for row in rows}
    return tuple(instance for row in rows for instance in (row, *(_replica(row, n) for n in numbers[row.name])))


def _replica(row: Service, number: int) -> Service:
    name = f"{row.name}-{number}"

    own_name = re.compile(rf"(?<=[{{/]){row.name}(?=[-}}]|$)|^{row.name}-1$")

    def renamed(text: str) -> str:
        return own_name.sub(name, text)

    return replace(
        row,
        name=name,
        what=f"{row.what}, no. {number}",
        settings={key: renamed(value) for key, value in row.settings.items()},
        ready=renamed(row.ready),
        address=renamed(row.address),
        ports=replica_ports(row, number),
    )


def replica_ports(row: Service, number: int) -> tuple[str, ...]:
    return tuple(port.replace(row.name, f"{row.name}-{number}", 1) for port in row.ports)
