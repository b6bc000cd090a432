"""Kafka Streams: an application that counts words, a JVM for each of its lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import maven
from tests.clients.contract import ClientError
from tests.clients.entrances import Entrance, of_java
from tests.clients.java.driver import JVM_OPTIONS
from tests.clients.processes import JsonLines
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
KAFKA_VERSION = "4.4.0"
START_TIMEOUT_SECONDS = 90.0
"""A JVM starts, topics are made, and brokers wait for more members: over 30 s on a busy machine."""


def class_path() -> str:
    return maven.class_path(PROJECT, KAFKA_VERSION)


@dataclass(frozen=True, slots=True)
class WordCount:
    """Its internal topics begin with the application's name, which so decides where they live."""

    bootstrap: str
    application: str
    guarantee: str
    state: Path
    input: str
    output: str
    protocol: str = "classic"
    """Of the group; by "streams" (KIP-1071) brokers give out the tasks."""

    @property
    def command(self) -> list[str]:
        jvm = [str(need("java")[0]), *JVM_OPTIONS, "-cp", class_path(), "mesh.clients.WordCount"]
        options = [Entrance.of(self.bootstrap).address, self.application, self.guarantee, str(self.state)]
        return [*jvm, *options, self.input, self.output, self.protocol, str(self._login)]

    @property
    def _login(self) -> Path:
        return self.state / "login.properties"

    @property
    def internal_topics(self) -> tuple[str, str]:
        return f"{self.application}-counts-repartition", f"{self.application}-counts-changelog"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs while inside; leaves when all is committed."""
        runs = asyncio.Event()
        states: list[str] = []

        def on_line(line: dict[str, Any]) -> None:
            states.append(line["state"])
            if line["state"] == "RUNNING":
                runs.set()

        self.state.mkdir(exist_ok=True)
        self._login.write_text(of_java(self.bootstrap), encoding="utf-8")
        program = await JsonLines.start(self.command, on_line)
        try:
            try:
                async with asyncio.timeout(START_TIMEOUT_SECONDS):
                    await runs.wait()
            except TimeoutError:
                raise ClientError(f"{self.application} does not run, but was {states}\n{program.stderr}") from None
            yield
            await program.end()
        finally:
            await program.kill()
