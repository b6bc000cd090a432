"""A mesh of two clusters that the judge starts for itself; all its parts and links can be disturbed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from judge.faults.cable import Cable
from judge.faults.fault import Fault, of_link
from judge.faults.stalls import Stalls
from judge.protocol.connection import Address, address
from judge.systems.clocks import Clock, library
from judge.systems.kafka import PORTS_OF_A_NODE, SHARE_SESSION_S, KafkaCluster
from judge.systems.operator import MeshOperator
from judge.systems.processes import Keeper, Owned, faults_of, signalled, waited_for
from judge.systems.revisions import Revisions
from judge.systems.shape import Shape
from judge.systems.skipped_markers import SkippedMarkers
from judge.systems.system import System, created
from local.leash import on_leash
from local.ports import is_free
from local.postgres import Postgres
from local.readiness import HttpReady, PostgresReady
from local.services import HOST
from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_blocking_channel

HOME, OTHER = "c1", "c2"
START_S = 240.0
CALL_S = 30.0
HOLD_MS = 4000
OFTEN = 3.0
"""Beside faults of one process or link, of which there are many."""


@dataclass(slots=True)
class MeshSystem(System):
    operator: MeshOperator | None = None
    links: Mapping[str, Sequence[Cable]] = field(default_factory=dict)

    def create_topic(self, name: str, partitions: int, *, elsewhere: bool = False) -> None:
        """On both clusters, with a rule that leads to the first, or to the second."""
        for doors in self.storage.values():
            created(doors[0], name, partitions)
        assert self.operator is not None, "a mesh has one"
        self.operator.move(name, OTHER if elsewhere else HOME)


@dataclass(slots=True)
class Mesh:
    """Its processes and the cables between them."""

    folder: Path
    shape: Shape
    first_port: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further environment of its services: tests plant faults by it."""
    parts: dict[str, Owned] = field(default_factory=dict)
    clusters: dict[str, KafkaCluster] = field(default_factory=dict)
    links: dict[str, list[Cable]] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    markers: SkippedMarkers = field(default_factory=SkippedMarkers)
    _ports: Iterator[int] | None = None

    @staticmethod
    def ports_for(shape: Shape) -> int:
        return (1 + shape.brokers) * PORTS_OF_A_NODE + 1 + 2 * (shape.gateways + shape.routers + shape.controls)

    def start(self, stack: contextlib.ExitStack) -> None:
        self._ports = iter(range(self.first_port, self.first_port + self.ports_for(self.shape)))
        stack.callback(self._stop)
        for name, size in ((HOME, 1), (OTHER, self.shape.brokers)):
            first, *_ = (next(self._ports) for _ in range(size * PORTS_OF_A_NODE))
            cluster = KafkaCluster(name, self.folder, first, size, self._clocked, self.markers)
            self.clusters[name] = cluster
            cluster.start()
            self.links[f"to {name}"] = cluster.cables
            self.parts |= {broker.name: broker for broker in cluster.brokers}
        database = self._start_database()
        self._start_services(database)
        _register(self.leader(), {name: each.bootstrap for name, each in self.clusters.items()})
        keeper = Keeper(tuple(self.parts.values()))
        stack.callback(keeper.stop.set)
        threading.Thread(target=keeper.run, daemon=True).start()
        for gateway in self.named("gateway"):
            gateway.launch()
        for gateway in self.named("gateway"):
            waited_for(gateway.is_up, f"{gateway.name} is ready, see {gateway.log}", START_S)

    def named(self, service: str) -> list[Owned]:
        return [part for name, part in self.parts.items() if re.fullmatch(rf"{service}-\d+", name)]

    def addresses(self, service: str) -> list[str]:
        return [part.environment[f"KAFKA_MESH_{service.upper()}_LISTEN"] for part in self.named(service)]

    def leader(self) -> str:
        """The address of the control that leads; empty: none does."""
        ready = [HttpReady(self.page(part, "/ready")).unmet() is None for part in self.named("control")]
        return next((where for where, leads in zip(self.addresses("control"), ready, strict=True) if leads), "")

    def page(self, part: Owned, path: str) -> str:
        service = part.name.partition("-")[0].upper()
        return f"http://{part.environment[f'KAFKA_MESH_{service}_METRICS_LISTEN']}{path}"

    def faults(self) -> list[Fault]:
        found = []
        for name, part in self.parts.items():
            found += faults_of(part, disk=name.startswith(("kafka", "postgres", "gateway")))
        for name, cables in self.links.items():
            found += of_link(name, *cables)
        for clock in self.clocks.values():
            found += clock.faults()
        return [*found, *self._lead_taken(), *self._without_quorum()]

    def stalls(self) -> Stalls:
        """The word of a switch is behind the database, then behind the home broker."""
        folders = [Path(part.environment["KAFKA_MESH_GATEWAY_STATE_DIR"]) for part in self.named("gateway")]
        faults = [
            Fault(
                f"freeze {part.name} behind HELD",
                signalled(part, signal.SIGSTOP),
                signalled(part, signal.SIGCONT),
                12.0,
                frozenset({part.name}),
            )
            for part in (self.clusters[HOME].brokers[0], self.parts["postgres"])
        ]
        return Stalls(faults, lambda: held_by_all(folders))

    def _lead_taken(self) -> list[Fault]:
        """From whichever control has it."""
        controls = self.named("control")
        stopped: list[Owned] = []

        def begin(number: signal.Signals) -> Callable[[], None]:
            def take() -> None:
                stopped[:] = [part for part in controls if HttpReady(self.page(part, "/ready")).unmet() is None][:1]
                for part in stopped:
                    signalled(part, number)()

            return take

        def end() -> None:
            for part in stopped:
                signalled(part, signal.SIGCONT)()

        parts = frozenset(part.name for part in controls)
        return [Fault("the control that leads stands still", begin(signal.SIGSTOP), end, 15.0, parts, OFTEN)]

    def _without_quorum(self) -> list[Fault]:
        """The faults in which two of three brokers are paused or killed."""
        brokers = self.clusters[OTHER].brokers[1:]
        if not brokers:
            return []

        def all_of(*steps: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                for step in steps:
                    step()

            return run

        parts = frozenset(each.name for each in brokers)
        frozen = all_of(*(signalled(each, signal.SIGSTOP) for each in brokers))
        thawed = all_of(*(signalled(each, signal.SIGCONT) for each in brokers))
        killed, started = all_of(*(each.kill for each in brokers)), all_of(*(each.start for each in brokers))
        return [
            Fault(f"{OTHER} without quorum: two brokers stand still", frozen, thawed, 15.0, parts, OFTEN),
            Fault(f"{OTHER} without quorum: two brokers killed", killed, started, 10.0, parts, OFTEN),
        ]

    def _start_database(self) -> Postgres:
        assert self._ports is not None, "given by start"
        postgres = Postgres(folder=self.folder / "postgres", port=next(self._ports))
        ready = PostgresReady(data=postgres.data, address=f"{HOST}:{postgres.port}")
        command = [sys.executable, "-m", "local.postgres", str(postgres.folder), "--port", str(postgres.port)]
        part = self._part("postgres", command, lambda: ready.unmet() is None, {}, signal.SIGINT)
        part.launch()
        waited_for(part.is_up, f"PostgreSQL is ready, see {part.log}", START_S)
        migrate = self._service("migrate", "migrate", {"KAFKA_MESH_CONTROL_DATABASE_URL": postgres.url()}, lambda: True)
        migrate.launch()
        assert migrate.process is not None, "launched"
        if migrate.process.wait(START_S):
            raise RuntimeError(f"the migration failed, see {migrate.log}")
        del self.parts["migrate"]
        return postgres

    def _start_services(self, database: Postgres) -> None:
        home = self.clusters[HOME].bootstrap
        for number in range(1, self.shape.controls + 1):
            name = f"control-{number}"
            [to] = self._linked(f"{name} to postgres", [(HOST, database.port)])
            url = database.url().replace(f"@{HOST}:{database.port}/", f"@{to}/")
            self._replica("control", number, {"DATABASE_URL": url, "HOME_BOOTSTRAP_SERVERS": home, "HOLD_MS": HOLD_MS})
        for number in range(1, self.shape.routers + 1):
            controls = self._linked(f"router-{number} to controls", map(address, self.addresses("control")))
            of_router = {"HOME_BOOTSTRAP_SERVERS": home, "CONTROL_ADDRESSES": ",".join(controls)}
            self._replica("router", number, {"NAME": f"router-{number}", **of_router})
        for number in range(1, self.shape.gateways + 1):
            routers = self._linked(f"gateway-{number} to routers", map(address, self.addresses("router")))
            of_gateway = {"ROUTER_ADDRESSES": ",".join(routers), "HOME_BOOTSTRAP_SERVERS": home}
            of_gateway |= {"STATE_DIR": str(self.folder / f"gateway-{number}"), "WORKERS": str(self.shape.workers)}
            self._replica("gateway", number, {"NAME": f"gateway-{number}", **of_gateway})
        first, *others = self.named("control")
        first.launch()
        waited_for(lambda: bool(self.leader()), f"{first.name} leads, see {first.log}", START_S)
        for part in (*others, *self.named("router")):
            part.launch()

    def _linked(self, name: str, to: Iterator[Address] | Sequence[Address]) -> list[str]:
        cables = [Cable(each).start() for each in to]
        self.links[name] = cables
        return [f"{host}:{port}" for host, port in (cable.address for cable in cables)]

    def _replica(self, service: str, number: int, settings: Mapping[str, object]) -> None:
        assert self._ports is not None, "given by start"
        listens = {"LISTEN": f"{HOST}:{next(self._ports)}", "METRICS_LISTEN": f"{HOST}:{next(self._ports)}"}
        prefix = f"KAFKA_MESH_{service.upper()}_"
        environment = {prefix + key: str(value) for key, value in {**listens, **settings}.items()}
        # a control that does not lead is never ready; it lives
        path = "live" if service == "control" else "ready"
        ready = HttpReady(f"http://{listens['METRICS_LISTEN']}/{path}")
        self._service(f"{service}-{number}", service, environment, lambda: ready.unmet() is None)

    def _service(self, name: str, command: str, environment: Mapping[str, str], is_ready: Callable[[], bool]) -> Owned:
        words = [sys.executable, "-m", "local.cli", command]
        return self._part(name, words, is_ready, {**environment, **self.settings, **self._clocked(name)})

    def _part(
        self,
        name: str,
        command: list[str],
        is_ready: Callable[[], bool],
        environment: dict[str, str],
        end: signal.Signals = signal.SIGTERM,
    ) -> Owned:
        part = Owned(name, on_leash(command), self.folder / f"{name}.log", is_ready, environment, end)
        self.parts[name] = part
        return part

    def _clocked(self, name: str) -> dict[str, str]:
        made = library(self.folder)
        if made is None or name == "migrate":
            return {}
        self.clocks[name] = Clock(name, self.folder / f"{name}.clock")
        return self.clocks[name].environment(made)

    def _stop(self) -> None:
        for part in reversed(self.parts.values()):
            part.kill()
        for cluster in self.clusters.values():
            cluster.stop()
        for cables in self.links.values():
            for cable in cables:
                cable.close()


@contextlib.contextmanager
def embedded_mesh(
    folder: Path,
    shape: Shape,
    *,
    calm: bool,
    moves: bool,
    ports: str = "20000-32000",
    settings: Mapping[str, str] | None = None,
) -> Iterator[MeshSystem]:
    """Fresh each time: logs stay in the folder."""
    folder = (folder / f"{time.strftime('%H%M%S')}-{os.getpid()}").resolve()
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        mesh = Mesh(folder, shape, _free(ports, Mesh.ports_for(shape)), settings or {})
        mesh.start(stack)
        doors = tuple(map(address, mesh.addresses("gateway")))
        told = dict(zip(mesh.addresses("gateway"), mesh.named("gateway"), strict=True))
        revisions = Revisions({where: mesh.page(part, "/metrics") for where, part in told.items()})
        threading.Thread(target=revisions.run, daemon=True).start()
        stack.callback(revisions.stop.set)
        operator = MeshOperator(mesh.leader)
        system = MeshSystem(
            f"mesh: {shape}",
            doors,
            {name: cluster.doors for name, cluster in mesh.clusters.items()},
            () if calm else mesh.faults(),
            stalls=Stalls() if calm else mesh.stalls(),
            owner=lambda topic: operator.owners.get(topic, ""),
            markers=mesh.markers,
            share_session_s=SHARE_SESSION_S,
            revision=revisions.during,
            operator=operator,
            links=mesh.links,
        )
        if moves:
            system.move, system.edits = operator.move, operator.edits
        yield system


def _register(control: str, clusters: Mapping[str, str]) -> None:
    with open_blocking_channel(control) as channel:
        for name, bootstrap in clusters.items():
            spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=bootstrap.split(","))
            request = admin.RegisterClusterRequest(spec=spec, request_id=str(uuid.uuid4()))
            admin_grpc.ClusterServiceStub(channel).RegisterCluster(request, timeout=CALL_S)


def held_by_all(folders: Sequence[Path]) -> int:
    """A gateway keeps the table of a move on its disk before it says HELD, until it knows how the move ended."""
    newest = [
        max((int(path.stem.removeprefix("held-table-")) for path in folder.glob("held-table-*.pb")), default=0)
        for folder in folders
    ]
    return newest[0] if len(set(newest)) == 1 else 0


def _free(ports: str, size: int) -> int:
    first, last = map(int, ports.split("-"))
    for _ in range(200):
        begin = random.randint(first, last - size)
        if all(is_free(port) for port in range(begin, begin + size)):
            return begin
    raise OSError(f"no {size} free ports in a row on {socket.gethostname()} in {ports}")
