"""Kafka's own command-line tools, by the classes that their shell scripts start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from tests.clients import maven
from tests.clients.console.hosts import Hosts, host_classes
from tests.clients.contract import EVERYTHING, ClientError
from tests.clients.entrances import Entrance, of_java
from tests.clients.java.driver import JVM_OPTIONS
from tests.clients.processes import run
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
KAFKA_VERSION = "4.4.0"
LOG_WARNINGS = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class Tool(StrEnum):
    """The scripts of Kafka's bin folder and the classes that they start."""

    TOPICS = "org.apache.kafka.tools.TopicCommand"
    CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
    CONFIGS = "org.apache.kafka.tools.ConfigCommand"
    BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
    CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
    CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
    VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
    END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
    GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
    GROUPS = "org.apache.kafka.tools.GroupsCommand"
    PRODUCER_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
    CONSUMER_PERF_TEST = "org.apache.kafka.tools.ConsumerPerformance"
    DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
    LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
    LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
    TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
    FEATURES = "org.apache.kafka.tools.FeatureCommand"
    REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    ACLS = "org.apache.kafka.tools.AclCommand"


CLOSES_AS_ITS_JVM_ENDS = frozenset({Tool.VERIFIABLE_PRODUCER, Tool.VERIFIABLE_CONSUMER})
"""Tools with a hook of their own at the end of the JVM."""


class ConsoleTools:
    """Kafka's tools at an entrance; one that logs in has the file of its login with each tool."""

    def __init__(self, bootstrap: str, *jvm_options: str) -> None:
        self._hosts = _hosts(*jvm_options)
        self._bootstrap: tuple[str, ...] = ("--bootstrap-server", Entrance.of(bootstrap).address)
        login = of_java(bootstrap)
        if login:
            self._login = NamedTemporaryFile("w", suffix=".properties", encoding="utf-8")  # noqa: SIM115 # as long as this is
            self._login.write(login)
            self._login.flush()
            self._bootstrap += ("--command-config", self._login.name)

    async def run(self, tool: Tool, *options: str, stdin: str = "") -> str:
        """What the tool prints on stdout. The console producer ends with 0 after a failed send: its log tells."""
        if tool in CLOSES_AS_ITS_JVM_ENDS:
            output = await run([*_java(), tool, *self._bootstrap, *options], stdin)
        else:
            output = await asyncio.to_thread(self._hosts.call, tool, (*self._bootstrap, *options), stdin)
        if "ERROR" in output.stderr:
            raise ClientError(f"{tool.name}: {output.stderr[-2000:]}")
        return output.stdout


def _java(*further: str) -> list[str]:
    """The command that runs a class of Kafka's tools; `further` stand behind their class path."""
    class_path = ":".join((maven.class_path(PROJECT, KAFKA_VERSION), *further))
    return [str(need("java")[0]), *JVM_OPTIONS, LOG_WARNINGS, "-cp", class_path]


@cache
def _hosts(*jvm_options: str) -> Hosts:
    class_path = maven.class_path(PROJECT, KAFKA_VERSION)
    tools = Path(class_path.rpartition(":")[2]).parent / f"kafka-tools-{KAFKA_VERSION}.jar"
    java, *command = _java(str(host_classes(class_path)))
    return Hosts([java, *jvm_options, *command, "ToolHost", str(tools)])


class ConsoleAdmin:
    """kafka-topics, kafka-configs, kafka-consumer-groups and kafka-broker-api-versions."""

    name = "console-tools"
    can = EVERYTHING

    def __init__(self, bootstrap: str) -> None:
        self._run = ConsoleTools(bootstrap).run

    async def create_topic(self, topic: str, partitions: int) -> None:
        await self._run(Tool.TOPICS, "--create", "--topic", topic, "--partitions", str(partitions))

    async def delete_topic(self, topic: str) -> None:
        await self._run(Tool.TOPICS, "--delete", "--topic", topic)

    async def topics(self) -> set[str]:
        return set((await self._run(Tool.TOPICS, "--list")).split())

    async def partitions(self, topic: str) -> int:
        printed = await self._run(Tool.TOPICS, "--describe", "--topic", topic)
        counts = re.findall(r"PartitionCount: (\d+)", printed)
        if len(counts) != 1:
            raise ClientError(f"{self.name}: no partition count for {topic!r} in {printed!r}")
        return int(counts[0])

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        options = ("--entity-type", "topics", "--entity-name", topic, "--describe", "--all")
        printed = await self._run(Tool.CONFIGS, *options)
        return dict(re.findall(r"^  (\S+?)=(\S*) sensitive=", printed, re.MULTILINE))

    async def brokers(self) -> set[str]:
        printed = await self._run(Tool.BROKER_API_VERSIONS)
        return set(re.findall(r"^(\S+:\d+) \(id: ", printed, re.MULTILINE))

    async def groups(self) -> set[str]:
        return set((await self._run(Tool.CONSUMER_GROUPS, "--list")).split())

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        printed = await self._run(Tool.CONSUMER_GROUPS, "--describe", "--offsets", "--group", group)
        rows = re.findall(rf"^{re.escape(group)}\s+(\S+)\s+(\d+)\s+(\d+)\s", printed, re.MULTILINE)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows if topic in topics}

    async def close(self) -> None:
        """Each tool ends by itself."""
