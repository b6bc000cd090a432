"""MirrorMaker 2 in its own process, which is a Connect cluster of one worker, from the address under test to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients import maven
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS
from tests.clients.entrances import Entrance, of_java
from tests.clients.java.driver import JVM_OPTIONS
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
KAFKA_VERSION = "4.3.1"  # no connect-mirror of 4.4.0 can be had where the tests run
INTERNAL = "mm2-"
"""How the topics begin in which Connect keeps its settings, offsets and states."""


def class_path() -> str:
    return maven.class_path(PROJECT, KAFKA_VERSION)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Copies a topic; `source`, the name of the source, is what the copy's name begins with."""

    bootstrap: str
    source: str
    topic: str

    @property
    def copy(self) -> str:
        return f"{self.source}.{self.topic}"

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[None]:
        """Copies while inside; what it says is in `folder`, in a log."""
        properties = folder / "mirror.properties"
        properties.write_text(self._properties(), encoding="ascii")
        jvm = [str(need("java")[0]), *JVM_OPTIONS, "-cp", class_path()]
        with (folder / "mirror.log").open("wb") as log:
            command = [*jvm, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)]
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), OPERATION_TIMEOUT_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()

    def _properties(self) -> str:
        replicated = (
            "replication", "config.storage.replication", "offset.storage.replication", "status.storage.replication",
            "offset-syncs.topic.replication", "checkpoints.topic.replication", "heartbeats.topic.replication",
        )  # fmt: skip
        address = Entrance.of(self.bootstrap).address
        settings = {
            "clusters": f"{self.source}, mesh",
            f"{self.source}.bootstrap.servers": address,
            "mesh.bootstrap.servers": address,
            f"{self.source}->mesh.enabled": "true",
            f"{self.source}->mesh.topics": self.topic,
            f"mesh->{self.source}.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "sync.topic.acls.enabled": "false",  # they need an authorizer
            "offset.flush.interval.ms": "1000",
            **{f"{what}.factor": "-1" for what in replicated},
        }
        login = of_java(self.bootstrap).splitlines()
        lines = [f"{name} = {value}" for name, value in settings.items()]
        lines += [f"{cluster}.{line}" for cluster in (self.source, "mesh") for line in login]
        return "".join(f"{line}\n" for line in lines)
