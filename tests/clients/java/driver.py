"""kafka-clients, from the newest back to 0.8.2: one program, compiled for each version against what its API has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.clients import maven
from tests.clients.contract import ALL_COMPRESSIONS, EVERYTHING, Can, Compression
from tests.clients.steered import SteeredAdmin, SteeredClient
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
# Short lives: the quick compiler and the smallest collector start fastest and leave the cores to the brokers.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


@dataclass(frozen=True, slots=True)
class Generation:
    """Versions that a program is written for: folders of `src`, and what they lack."""

    api: str
    lacks: frozenset[Can] = frozenset()
    reading: str = "consumer"
    copying: str = "transactions"
    no_compression: frozenset[Compression] = frozenset()


WITHOUT_ZSTD = frozenset({Compression.ZSTD})
GENERATIONS = {
    "1.1": Generation("v1_1", frozenset({Can.LIST_GROUPS}), no_compression=WITHOUT_ZSTD),
    # Its SCRAM needs a class that Java had until version 8.
    "0.10": Generation(
        "v0_10",
        frozenset({Can.SEND_HEADERS, Can.READ_COMMITTED, Can.LOG_IN, Can.TRANSACT}),
        copying="v0_10",
        no_compression=WITHOUT_ZSTD,
    ),
    # Its KafkaConsumer is a draft that answers null, and the consumer of the core needs ZooKeeper.
    "0.8": Generation(
        "v0_8",
        frozenset({Can.SEND_HEADERS, Can.SET_TIMESTAMPS, Can.CONSUME, Can.LOG_IN, Can.TRANSACT}),
        reading="v0_8",
        copying="v0_8",
        no_compression=WITHOUT_ZSTD,
    ),
}
NEWER = Generation("v2_4")


def generation(version: str) -> Generation:
    return next((found for prefix, found in GENERATIONS.items() if version.startswith(f"{prefix}.")), NEWER)


def command(version: str, bootstrap: str) -> list[str]:
    """Command line of the program for a kafka-clients version."""
    of = generation(version)
    class_path = maven.class_path(PROJECT, version, f"api={of.api}", f"reading={of.reading}", f"copying={of.copying}")
    return [str(need("java")[0]), *JVM_OPTIONS, "-cp", class_path, "mesh.clients.Main", bootstrap]


class JavaClient(SteeredClient):
    """kafka-clients of one version as producer and consumer."""

    def __init__(self, bootstrap: str, version: str) -> None:
        of = generation(version)
        can, compressions = EVERYTHING - of.lacks, ALL_COMPRESSIONS - of.no_compression
        super().__init__(f"java-{version}", command(version, bootstrap), can, compressions)


class JavaAdmin(SteeredAdmin):
    def __init__(self, bootstrap: str, version: str) -> None:
        super().__init__(f"java-{version}", command(version, bootstrap), EVERYTHING - generation(version).lacks)
