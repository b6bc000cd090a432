"""A mesh of two clusters that the judge starts for itself; all its parts and its links to both can be disturbed."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from judge.faults.cable import Cable, State
from judge.faults.fault import Fault
from judge.protocol.connection import Address, address
from judge.systems.processes import Owned, Part, Supervised, faults_of, waited_for
from judge.systems.system import System, created
from local.leash import on_leash
from local.ports import is_free
from local.readiness import KafkaReady
from local.services import HOST, PORTS
from mesh.rpc import admin, admin_grpc, routing

CLUSTERS = ("c1", "c2")
SPARE_PORTS = 32
START_S = 240.0
MOVE_S = 30.0
SAMPLE_S = 0.25
REVISION = re.compile(r"^kafka_mesh_gateway_table_revision(?:{[^}]*})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass(slots=True)
class MeshSystem(System):
    control: str = ""
    homes: dict[str, str] = field(default_factory=dict)

    def create_topic(self, name: str, partitions: int) -> None:
        """On both clusters, with a rule that leads to the first."""
        for doors in self.storage.values():
            created(doors[0], name, partitions)
        self.lead(name, CLUSTERS[0])

    def lead(self, topic: str, cluster: str) -> None:
        """The operator's order; returns when all gateways have switched."""
        request = admin.SetRuleRequest(
            match=routing.RuleMatch(topic=topic),
            target_cluster=cluster,
            options=admin.ChangeOptions(accept_skip=True, request_id=str(uuid.uuid4())),
        )
        with grpc.insecure_channel(self.control) as channel:
            try:
                admin_grpc.RuleServiceStub(channel).SetRule(request, timeout=MOVE_S)
            except grpc.RpcError as error:
                raise RuntimeError(f"SetRule: {error}") from error


@dataclass(slots=True)
class Revisions:
    """What runs where, looked up a few times a second."""

    pages: dict[str, str]
    """A gateway's address to its page of metrics."""
    stop: threading.Event = field(default_factory=threading.Event)
    _known: dict[str, int] = field(default_factory=dict)

    def at(self, via: str) -> int:
        return self._known.get(via, 0)

    def run(self) -> None:
        while not self.stop.wait(SAMPLE_S):
            for gateway, page in self.pages.items():
                with contextlib.suppress(OSError):
                    with urllib.request.urlopen(page, timeout=1) as answer:
                        found = REVISION.search(answer.read().decode())
                    if found:
                        self._known[gateway] = int(float(found.group(1)))


@contextlib.contextmanager
def embedded_mesh(
    folder: Path, gateways: int, routers: int, *, calm: bool, moves: bool, ports: str = "20000-32000"
) -> Iterator[System]:
    """Fresh each time: logs stay in the folder."""
    folder = (folder / time.strftime("%H%M%S")).resolve()
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        brokers, cables = {}, {}
        for name in CLUSTERS:
            first = _free(ports, 2)
            cable = Cable((HOST, first)).start()
            stack.callback(cable.close)
            broker = _broker(name, folder, first, cable.address)
            stack.callback(broker.stop)
            broker.launch()
            brokers[name], cables[name] = broker, cable
        for broker in brokers.values():
            waited_for(broker.is_ready, f"{broker.name} answers, see {broker.log}", START_S)
        state = stack.enter_context(_up(folder, cables, gateways, routers, _free(ports, len(PORTS) + SPARE_PORTS)))
        endpoints: dict[str, str] = json.loads((state / "endpoints.json").read_text(encoding="utf-8"))
        names = [name for name in endpoints if re.fullmatch(r"gateway(-\d+)?", name)]
        pages = {endpoints[name]: f"http://{endpoints[f'{name}-metrics']}/metrics" for name in names}
        revisions = Revisions(pages)
        threading.Thread(target=revisions.run, daemon=True).start()
        stack.callback(revisions.stop.set)
        parts: list[Part] = [
            Supervised(name, state)
            for name in ("control", "postgres", *names, *(n for n in endpoints if re.fullmatch(r"router(-\d+)?", n)))
        ]
        faults = [fault for part in parts for fault in faults_of(part, disk=part.name == "postgres")]
        faults += [fault for broker in brokers.values() for fault in faults_of(broker, disk=True)]
        faults += [fault for name, cable in cables.items() for fault in _of_link(name, cable)]
        system = MeshSystem(
            f"mesh of {gateways} gateways, {routers} routers, {len(CLUSTERS)} clusters",
            tuple(address(endpoints[name]) for name in names),
            {name: (cable.address,) for name, cable in cables.items()},
            () if calm else faults,
            revision=revisions.at,
            control=endpoints["control"],
        )
        if moves:
            system.move = system.lead
        yield system


def _of_link(name: str, cable: Cable) -> list[Fault]:
    def fault(state: State) -> Fault:
        return Fault(f"link to {name} {state}", lambda: cable.become(state), lambda: cable.become(State.WHOLE))

    return [fault(state) for state in State if state is not State.WHOLE]


def _broker(name: str, folder: Path, port: int, seen_at: Address) -> Owned:
    further = folder / f"{name}.properties"
    lines = (f"advertised.listeners=PLAINTEXT://{seen_at[0]}:{seen_at[1]}", "log.retention.ms=-1")
    further.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    ports = ["--port", str(port), "--controller-port", str(port + 1), "--further", str(further)]
    command = [sys.executable, "-m", "local.kafka", str(folder / name), *ports]
    ready = KafkaReady(f"{HOST}:{port}")
    return Owned(f"kafka-{name}", on_leash(command), folder / f"{name}.log", lambda: ready.unmet() is None, {})


@contextlib.contextmanager
def _up(folder: Path, cables: dict[str, Cable], gateways: int, routers: int, first_port: int) -> Iterator[Path]:
    state = folder / "state"
    state.mkdir()
    options = [f"--state-dir={state}", f"--port-base={first_port}", "--no-pipeline"]
    options += [f"--gateways={gateways}", f"--routers={routers}"]
    options += [f"--cluster={name}={cable.address[0]}:{cable.address[1]}" for name, cable in cables.items()]
    log = folder / "up.log"
    with log.open("ab") as output:
        command = on_leash([sys.executable, "-m", "local.cli", "up", *options])
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )

    def is_up() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"kafka-mesh up ended with {process.returncode}, see {log}")
        try:
            rows = json.loads((state / "processes.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        return {row["state"] for row in rows.values()} <= {"ready", "done"}

    try:
        waited_for(is_up, f"the mesh is up, see {log}", START_S)
        yield state
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _free(ports: str, size: int) -> int:
    first, last = map(int, ports.split("-"))
    for _ in range(200):
        begin = random.randint(first, last - size)
        if all(is_free(port) for port in range(begin, begin + size)):
            return begin
    raise OSError(f"no {size} free ports in a row on {socket.gethostname()} in {ports}")
