"""The Java client, by the program in `src`: a JVM for each producer or consumer, one for the admin client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients import maven
from tests.clients.contract import (
    ALL_COMPRESSIONS,
    EVERYTHING,
    OPERATION_TIMEOUT_SECONDS,
    ClientError,
    Delivery,
    Message,
    Reading,
    Received,
    Sending,
)
from tests.clients.processes import JsonLines
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
# Short lives: the quick compiler and the smallest collector start fastest and leave the cores to the brokers.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def command(version: str, name: str, bootstrap: str, *arguments: str) -> list[str]:
    """Command line of the Java program for a kafka-clients version."""
    jvm = [str(need("java")[0]), *JVM_OPTIONS, "-cp", maven.class_path(PROJECT, version)]
    return [*jvm, "mesh.clients.Main", name, "--bootstrap", bootstrap, *arguments]


def configs(**properties: str) -> list[str]:
    """Arguments for client properties, written with underscores for dots."""
    return [part for name, value in properties.items() for part in ("--config", f"{name.replace('_', '.')}={value}")]


class JavaClient:
    """kafka-clients of one version as producer and consumer."""

    can = EVERYTHING
    compressions = ALL_COMPRESSIONS

    def __init__(self, bootstrap: str, version: str) -> None:
        self.name = f"java-{version}"
        self._bootstrap = bootstrap
        self._version = version
        maven.class_path(PROJECT, version)  # a first build belongs to the set-up of a test, not to its time limit

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        properties = configs(
            acks=sending.acks,
            compression_type=sending.compression,
            enable_idempotence=str(sending.idempotent).lower(),
            delivery_timeout_ms="20000",
            request_timeout_ms="15000",
        )
        lines = await self._run("".join(map(_line, messages)), "produce", "--records", "stdin", *properties)
        deliveries = []
        for line in lines:
            if "acked" in line:
                offset = line["offset"] if line["offset"] >= 0 else None
                value = messages[int(line["acked"])].value
                deliveries.append(Delivery(value, line["topic"], line["partition"], offset))
        return deliveries

    async def consume(self, reading: Reading) -> list[Received]:
        lines = await self._run(
            None,
            "consume",
            *(("--pattern", reading.pattern) if reading.pattern else ("--topics", ",".join(reading.topics))),
            *("--group", reading.group, "--count", str(reading.count)),
            *configs(isolation_level=reading.isolation),
        )
        return [_received(line) for line in lines if "received" in line]

    async def _run(self, stdin: str | None, name: str, *arguments: str) -> list[dict[str, Any]]:
        """Runs the program to its end; stdin stays open when the program takes its end as a stop."""
        lines: list[dict[str, Any]] = []
        program = await JsonLines.start(command(self._version, name, self._bootstrap, *arguments), lines.append)
        try:
            if stdin is not None:
                await program.end(stdin)
            else:
                async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
                    await program.finished()
        except TimeoutError:
            told = [line for line in lines if "received" not in line]
            received = len(lines) - len(told)
            raise ClientError(f"{self.name} {name}: no end; {received} received; {told}\n{program.stderr}") from None
        finally:
            await program.kill()
        errors = [line for line in lines if "error" in line]
        if errors:
            raise ClientError(f"{self.name} {name}: {errors}\n{program.stderr}")
        return lines


class JavaAdmin:
    """The Admin client of kafka-clients, kept in one JVM for as long as it is used."""

    def __init__(self, bootstrap: str, version: str) -> None:
        self.name = f"java-{version}"
        self._command = command(version, "admin", bootstrap)
        self._program: JsonLines | None = None
        # The program answers each question before the next is asked.
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=1)

    async def create_topic(self, topic: str, partitions: int) -> None:
        await self._ask(f"create-topic {topic} {partitions}")

    async def delete_topic(self, topic: str) -> None:
        await self._ask(f"delete-topic {topic}")

    async def topics(self) -> set[str]:
        return set(await self._ask("topics"))

    async def partitions(self, topic: str) -> int:
        return len(await self._ask(f"describe-topic {topic}"))

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        config: dict[str, str] = await self._ask(f"topic-config {topic}")
        return config

    async def brokers(self) -> set[str]:
        return {node["address"] for node in (await self._ask("cluster"))["nodes"]}

    async def groups(self) -> set[str]:
        return set(await self._ask("groups"))

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        offsets: dict[str, int] = await self._ask(f"committed {group}")
        found = {}
        for topic_partition, offset in offsets.items():
            topic, _, partition = topic_partition.rpartition("-")
            if topic in topics:
                found[topic, int(partition)] = offset
        return found

    async def close(self) -> None:
        if self._program is not None:
            await self._program.end()

    async def _ask(self, question: str) -> Any:
        if self._program is None:
            self._program = await JsonLines.start(self._command, self._answers.put_nowait)
        await self._program.send(question)
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
                answer = await self._answers.get()
        except TimeoutError:
            raise ClientError(f"{self.name} {question!r}: no answer\n{self._program.stderr}") from None
        if "error" in answer:
            raise ClientError(f"{self.name} {question!r}: {answer['type']}: {answer['error']}")
        return answer["result"]


def _line(message: Message) -> str:
    """A record in the form that Produce.java reads from stdin."""
    headers = ",".join(f"{_base64(name)}.{_base64(value)}" for name, value in message.headers) or "-"
    timestamp = "-" if message.timestamp_ms is None else str(message.timestamp_ms)
    key = "-" if message.key is None else _base64(message.key)
    return "\t".join((message.topic, key, _base64(message.value), timestamp, headers)) + "\n"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _received(line: Mapping[str, Any]) -> Received:
    return Received(
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        value=line["received"],
        key=line["key"],
        headers=tuple(sorted(line["headers"].items())),
        timestamp_ms=line["timestamp"],
    )
