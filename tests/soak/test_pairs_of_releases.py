"""Each pair of services works together if one is of this release and the other of the one before.

In a case all services but one are of one release. So each service meets each other service as the newer one of the two,
and as the older one. In each case an operator registers clusters and moves a topic, clients and a sidecar's backend
produce and read before and after the move, the console shows the move, and the pipeline archives the topic.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from _pytest.mark import ParameterSet
from confluent_kafka import Consumer, Producer

from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.ports import free_block
from tests.fixtures.releases import Release
from tests.fixtures.waiting import until
from tests.integration.control.world import create_topic
from tests.integration.router.parts import ServiceProcess

PARTS = ("control", "router", "gateway", "sidecar", "console", "meshctl", "pipeline")
WITHIN_S = 120.0
JOB_S = 300.0
"""Spark starts in it, on a busy machine."""
Releases = Mapping[str, Release | None]
"""The release of each part; None: this release."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """The processes, and how an operator, a client and a backend use them."""

    releases: Releases
    control: ServiceProcess
    gateway: ServiceProcess
    sidecar: ServiceProcess
    console: ServiceProcess
    folder: Path

    def run(self, part: str, *arguments: str, within_s: float = WITHIN_S, **settings: str) -> str:
        """The output of a program that ends by itself. It must not fail."""
        release = self.releases[part]
        done = subprocess.run(
            [release.python if release else sys.executable, "-m", *arguments],
            cwd=release.folder if release else None,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )
        assert done.returncode == 0, f"{part} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    async def meshctl(self, *arguments: str) -> str:
        return await asyncio.to_thread(
            self.run, "meshctl", "meshctl", *arguments, MESHCTL_ADDRESS=self.control.address, USER="ada"
        )

    def produce(self, topic: str, value: str) -> None:
        """By a client at the gateway."""
        faults: list[object] = []
        producer = Producer({"bootstrap.servers": self.gateway.address})
        producer.produce(topic, value, on_delivery=lambda error, _: faults.append(error))
        assert producer.flush(WITHIN_S) == 0
        assert faults == [None]

    def read(self, topic: str, count: int) -> list[str]:
        """The topic from its beginning, as a new group reads it at the gateway."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.gateway.address,
                "group.id": f"{topic}-{count}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        try:
            return sorted(_values(consumer, count))
        finally:
            consumer.close()

    def produce_by_sidecar(self, topic: str, value: str) -> None:
        with self._backend() as backend:
            answer = backend.post(f"/producers/{topic}", json={"valueFormat": "string", "records": [{"value": value}]})
            assert answer.is_success, answer.text

    def read_by_sidecar(self, topic: str, count: int) -> list[str]:
        with self._backend() as backend:
            group = f"{topic}-backend-{count}"
            wanted = {"name": "i1", "autoOffsetReset": "earliest", "valueFormat": "string"}
            path = backend.post(f"/consumers/{group}", json=wanted).raise_for_status().json()["base_uri"]
            backend.post(f"{path}/subscriptions", json={"topics": [topic]}).raise_for_status()
            found: list[str] = []
            while len(found) < count:
                records = backend.get(f"{path}/records", params={"timeout": "5000"}).raise_for_status().json()
                found += [each["value"] for each in records]
            backend.delete(path).raise_for_status()
            return sorted(found)

    def archived(self, topic: str) -> str:
        """The job's last words."""
        return self.run(
            "pipeline", "services.pipeline", "run", "archive", topic, "--to", str(self.folder / "archive"),
            "--bootstrap", self.gateway.address, within_s=JOB_S,
            KAFKA_MESH_PIPELINE_CONTROL_ADDRESSES=self.control.address,
            KAFKA_MESH_PIPELINE_STATE_DIR=str(self.folder / "state-pipeline"),
        )  # fmt: skip

    async def shows(self, path: str, text: str) -> None:
        """The page of the console has the text in the end."""
        page = ""

        async def is_there() -> bool:
            nonlocal page
            answer = await client.get(path)
            page = answer.text
            assert answer.is_success, page
            return re.search(rf"\b{re.escape(text)}\b", page) is not None

        async with httpx.AsyncClient(base_url=f"http://{self.console.address}", timeout=WITHIN_S) as client:
            await until(is_there, f"{path} shows {text}", WITHIN_S)

    def _backend(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://{self.sidecar.address}", timeout=WITHIN_S)


@asynccontextmanager
async def running(
    releases: Releases, database: str, home: KafkaCluster, events_topic: str, folder: Path
) -> AsyncIterator[Mesh]:
    def process(service: str, **settings: str) -> ServiceProcess:
        made = ServiceProcess(service, free_block(2), folder / f"{service}.log", settings)
        made.release = releases[service]
        return made

    home_of = {"HOME_BOOTSTRAP_SERVERS": home.bootstrap, "EVENTS_TOPIC": events_topic}
    control = process("control", DATABASE_URL=database, AUDIT_TOPIC=f"{events_topic}.audit", **home_of)
    router = process(
        "router",
        NAME="r1",
        SNAPSHOTS_TOPIC=f"{events_topic}.snapshots",
        CONTROL_ADDRESSES=control.address,
        **home_of,
    )
    gateway = process("gateway", NAME="g1", ROUTER_ADDRESSES=router.address, STATE_DIR=str(folder / "state-g1"))
    sidecar = process(
        "sidecar",
        NAME="s1",
        BOOTSTRAP_SERVERS=gateway.address,
        CONTROL_ADDRESSES=control.address,
        STATE_DIR=str(folder / "state-s1"),
    )
    console = process("console", CONTROL_ADDRESS=control.address)
    mesh = Mesh(releases, control, gateway, sidecar, console, folder)
    mesh.run("control", "local.cli", "migrate", KAFKA_MESH_CONTROL_DATABASE_URL=database)
    processes = (control, router, gateway, sidecar, console)
    try:
        for each in processes:
            each.start()
        yield mesh
    finally:
        for each in reversed(processes):
            await asyncio.to_thread(each.stop)


def cases() -> Iterator[ParameterSet]:
    """The release of all parts but one, and of the one."""
    for part in PARTS:
        yield pytest.param(part, True, id=f"{part} is newer")
        yield pytest.param(part, False, id=f"{part} is older")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("part", "is_newer"), list(cases()))
async def test_one_part_is_of_another_release_than_all_others(
    part: str,
    is_newer: bool,
    earlier_release: Release,
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("orders")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, topic, 1)
    releases = {each: None if (each == part) is is_newer else earlier_release for each in PARTS}
    async with running(releases, postgres(), kafka_c1, unique_name("events"), tmp_path) as mesh:
        await _ready(mesh.control)
        for name, cluster in (("c1", kafka_c1), ("c2", kafka_c2)):
            await mesh.meshctl("cluster", "register", name, cluster.bootstrap)
        await mesh.meshctl("rule", "set", "--topic", topic, "--to", "c1")
        for each in (mesh.gateway, mesh.sidecar, mesh.console):
            await _ready(each)
        await asyncio.to_thread(mesh.produce, topic, "client-1")
        await asyncio.to_thread(mesh.produce_by_sidecar, topic, "sidecar-1")
        first = ["client-1", "sidecar-1"]
        assert await asyncio.to_thread(mesh.read, topic, 2) == first
        assert await asyncio.to_thread(mesh.read_by_sidecar, topic, 2) == first
        assert "2 records" in await asyncio.to_thread(mesh.archived, topic)

        await mesh.meshctl("rule", "set", "--topic", topic, "--to", "c2", "--wait")
        await asyncio.to_thread(mesh.produce, topic, "client-2")
        await asyncio.to_thread(mesh.produce_by_sidecar, topic, "sidecar-2")
        second = ["client-2", "sidecar-2"]
        there = await Upstream("c2", kafka_c2.bootstrap).read(topic)
        assert sorted(record.value for record in there) == second
        assert await asyncio.to_thread(mesh.read, topic, 2) == second
        assert await asyncio.to_thread(mesh.read_by_sidecar, topic, 2) == second
        await mesh.shows("/", "g1")
        await mesh.shows("/rules", topic)
        await mesh.shows(f"/explain?name={topic}", "c2")
        assert "applied" in await mesh.meshctl("status")


def _values(consumer: Consumer, count: int) -> Iterator[str]:
    for _ in range(count):
        message = consumer.poll(WITHIN_S)
        assert message is not None, f"fewer than {count} records"
        assert message.error() is None, message.error()
        yield (message.value() or b"").decode()


async def _ready(process: ServiceProcess) -> None:
    said = ""

    async def is_ready() -> bool:
        nonlocal said
        said = await asyncio.to_thread(process.ready)
        return said == "ready"

    await until(is_ready, f"{process.log_file.stem} is ready", WITHIN_S)
