"""An embedded Kafka cluster: one KRaft node on loopback, formatted once, sized for a small machine.

`python -m local.kafka FOLDER --port P --controller-port C` writes the configuration, formats the storage when there is
none, and then *becomes* the broker (exec), so that the parent process holds the broker itself: its pid, its signals.
SIGTERM is Kafka's graceful stop. The data is in FOLDER and survives restarts.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from local.jars import cache_folder, classpath, missing_jars
from local.java import Java, JavaError, find_java

FORMAT_TIMEOUT_S = 120
DEFAULT_HEAP_MB = 384
FORMAT_HEAP_MB = 256
# Archives of loaded classes that the JVM makes and refreshes by itself exist from Java 19 on; they save a second.
SELF_ARCHIVING_JAVA = 19
# C1 alone reaches full start-up speed sooner and leaves the small machine's cores to the mesh.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
# Without its own hook, the logging goes on until a stopped broker has ended: controlled shutdown has a story too.
QUIET_LOGGING = """\
status = error
shutdownHook = disable
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
logger.markers.name = kafka.coordinator.transaction.TransactionMarkerChannelManager
logger.markers.level = info
logger.parser.name = org.apache.kafka.common.utils.AppInfoParser
logger.parser.level = error
"""


class FormatError(Exception):
    """Kafka's own tool did not format the storage; the message contains the tool's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """One embedded cluster: where it keeps its data, and where it listens."""

    folder: Path
    port: int
    controller_port: int
    heap_mb: int = DEFAULT_HEAP_MB
    further: str = ""
    """Further lines for server.properties; they override the lines here."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def properties(self) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # A killed broker may register again only when its last session is over. A busy machine starves a broker for
            # some seconds, and then its own controller takes its partitions away.
            "broker.session.timeout.ms": 10_000,
            "broker.heartbeat.interval.ms": 500,
            # By default Kafka writes an empty metadata record every 500 ms, which costs an idle machine time.
            "metadata.max.idle.interval.ms": 5000,
            # Each partition keeps its index files mapped at full size from birth; a mesh on a laptop has small ones.
            "log.index.size.max.bytes": 1024 * 1024,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items()) + self.further

    def prepare(self) -> None:
        """Write the configuration, and format the storage once."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / "server.properties").write_text(self.properties(), encoding="ascii")
        (self.folder / "log4j2.properties").write_text(QUIET_LOGGING, encoding="ascii")
        if not (self.data / "meta.properties").exists():
            self._format()

    def command(self) -> list[str]:
        """The command that runs the broker."""
        return [*self._java(self.heap_mb), "kafka.Kafka", str(self.folder / "server.properties")]

    def _java(self, heap_mb: int) -> list[str]:
        java = find_java()
        return [
            str(java.command),
            f"-Xmx{heap_mb}m",
            *JVM_OPTIONS,
            *self._archiving(java),
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            f"-Dkafka.logs.dir={self.folder}",
            "-cp",
            classpath(),
        ]

    def _archiving(self, java: Java) -> list[str]:
        shared, own = class_data_sharing(java), self.folder / "classes.jsa"
        if shared.exists():
            return [f"-XX:SharedArchiveFile={shared}"]
        if java.major >= SELF_ARCHIVING_JAVA:
            return ["-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={own}"]
        return ["-Xshare:auto"]

    def _format(self) -> None:
        arguments = ["format", "--cluster-id", new_cluster_id(), "--config", str(self.folder / "server.properties")]
        run = subprocess.run(
            [*self._java(FORMAT_HEAP_MB), "kafka.tools.StorageTool", *arguments, "--ignore-formatted"],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
        )
        if run.returncode != 0:
            raise FormatError(f"exit {run.returncode}: {run.stdout.strip()[-1000:]}")


def class_data_sharing(java: Java) -> Path:
    """An archive of the classes that brokers load, for all brokers of this Java and these jars: half of their start.
    The tests make it (`tests/fixtures/class_archives.py`), for they start brokers again and again.
    """
    files = [java.command.resolve(), *map(Path, classpath().split(os.pathsep))]
    written = "\n".join(f"{file} {file.stat().st_mtime_ns}" for file in files)
    return cache_folder() / f"classes-{hashlib.sha256(written.encode()).hexdigest()[:12]}.jsa"


def new_cluster_id() -> str:
    """As Kafka makes them: none begins with "-", which its own command lines would take for an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not made.startswith("-"):
            return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local.kafka", description="Run one embedded Kafka node.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--controller-port", type=int, required=True)
    parser.add_argument("--heap-mb", type=int, default=DEFAULT_HEAP_MB)
    parser.add_argument("--further", type=Path, help="file with further lines for server.properties")
    options = parser.parse_args()
    if missing := missing_jars():
        sys.exit(f"{len(missing)} of Kafka's jars are not in the cache: run `python -m local.jars` first")
    node = KafkaNode(
        folder=options.folder.resolve(),
        port=options.port,
        controller_port=options.controller_port,
        heap_mb=options.heap_mb,
        further=options.further.read_text(encoding="ascii") if options.further else "",
    )
    try:
        node.prepare()
        command = node.command()
    except JavaError as error:
        sys.exit(str(error))
    except (FormatError, subprocess.TimeoutExpired) as error:
        sys.exit(f"Kafka's storage in {node.data} was not formatted: {error}")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
