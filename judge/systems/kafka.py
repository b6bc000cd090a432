"""A Kafka cluster of the judge: one broker, or three of which two can be taken away; clients reach each by a cable."""

from __future__ import annotations

import base64
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from judge.faults.cable import Cable
from judge.protocol.connection import Address
from judge.systems.processes import Owned, waited_for
from judge.systems.skipped_markers import SkippedMarkers
from local.leash import on_leash
from local.readiness import KafkaReady
from local.services import HOST

PORTS_OF_A_NODE = 3
"""For clients, for other brokers, for controllers."""
START_S = 240.0
SHARE_SESSION_S = 15
"""A client that ends without a goodbye keeps its partitions of a share group for so long."""
SETTINGS = (
    "log.retention.ms=-1",
    "group.share.min.record.lock.duration.ms=15000",
    "group.share.record.lock.duration.ms=15000",
    f"group.share.min.session.timeout.ms={SHARE_SESSION_S * 1000}",
    f"group.share.session.timeout.ms={SHARE_SESSION_S * 1000}",
    "group.share.delivery.count.limit=10",
    # Kafka 4.4 keeps the time of the last assignment: after a fault set the clock ahead, no group would get another one
    "group.consumer.assignment.interval.ms=0",
    "group.share.assignment.interval.ms=0",
    "group.streams.assignment.interval.ms=0",
)
REPLICATED = (
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
    "default.replication.factor=3",
    "min.insync.replicas=2",
)


@dataclass(slots=True)
class KafkaCluster:
    """Node 1 is the controller too; with three nodes a write needs two of them."""

    name: str
    folder: Path
    first_port: int
    size: int
    environment: Callable[[str], dict[str, str]] = lambda name: {}
    """The environment variables of the broker with this name."""
    markers: SkippedMarkers = field(default_factory=SkippedMarkers)
    brokers: list[Owned] = field(default_factory=list)
    cables: list[Cable] = field(default_factory=list)

    @property
    def doors(self) -> tuple[Address, ...]:
        return tuple(cable.address for cable in self.cables)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.doors)

    def start(self) -> None:
        """Brokers 2 and 3 know the cluster by the id that the first one was formatted with."""
        for number in range(1, self.size + 1):
            self.cables.append(Cable((HOST, self._port(number))).start())
            self.brokers.append(self._broker(number))
        self._launch(self.brokers[0])
        written = (self._data(1) / "meta.properties").read_text(encoding="ascii")
        first = dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
        for number in range(2, self.size + 1):
            self._data(number).mkdir(parents=True)
            directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "x")
            lines = {**first, "node.id": str(number), "directory.id": directory_id}
            text = "".join(f"{key}={value}\n" for key, value in lines.items())
            (self._data(number) / "meta.properties").write_text(text, encoding="ascii")
            self._launch(self.brokers[number - 1])

    def stop(self) -> None:
        for broker in reversed(self.brokers):
            broker.kill()
        for cable in self.cables:
            cable.close()

    def _launch(self, broker: Owned) -> None:
        broker.launch()
        waited_for(broker.is_up, f"{broker.name} answers, see {broker.log}", START_S)

    def _port(self, number: int, which: int = 0) -> int:
        return self.first_port + PORTS_OF_A_NODE * (number - 1) + which

    def _data(self, number: int) -> Path:
        return self.folder / f"{self.name}-{number}" / "data"

    def _broker(self, number: int) -> Owned:
        port, own = self._port(number), f"kafka-{self.name}-{number}"
        host, seen = self.cables[number - 1].address
        controller = f"{HOST}:{self._port(1, 2)}"
        listeners = f"PLAINTEXT://{HOST}:{port},BETWEEN://{HOST}:{self._port(number, 1)}"
        lines = (
            *SETTINGS,
            *(REPLICATED if self.size > 1 else ()),
            f"node.id={number}",
            f"process.roles={'broker,controller' if number == 1 else 'broker'}",
            f"controller.quorum.voters=1@{controller}",
            f"listeners={listeners}" + (f",CONTROLLER://{controller}" if number == 1 else ""),
            f"advertised.listeners=PLAINTEXT://{host}:{seen},BETWEEN://{HOST}:{self._port(number, 1)}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=BETWEEN",
        )
        further = self.folder / f"{own}.properties"
        further.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        folder = str(self.folder / f"{self.name}-{number}")
        ports = ["--port", str(port), "--controller-port", str(self._port(1, 2)), "--further", str(further)]
        command = on_leash([sys.executable, "-m", "local.kafka", folder, *ports])
        ready = KafkaReady(f"{HOST}:{port}")
        log, environment = self.folder / f"{own}.log", self.environment(own)
        return Owned(
            own, command, log, lambda: ready.unmet() is None, environment, hears=partial(self.markers.hear, own)
        )
