"""franz-go, sarama and segmentio's kafka-go: one program that tests steer, and one that logs in, built by Go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.clients import builds
from tests.clients.contract import ALL_COMPRESSIONS, EVERYTHING, Can, Compression
from tests.clients.steered import SteeredAdmin, SteeredClient
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go", "steer", "conversation", "franz", "sarama", "segment", "login")


def command(library: str, bootstrap: str, *version: str) -> list[str]:
    """The program for a library; for sarama with the version of Kafka that it shall speak to."""
    return [str(_built() / "clients"), library, bootstrap, *version]


def login_command(
    library: str, bootstrap: str, authority: Path, mechanism: str, topics: Sequence[str], values: Sequence[str]
) -> list[str]:
    """The program that writes values over TLS and reads them. Its environment has the secrets (`login/main.go`)."""
    where = [bootstrap, str(authority), mechanism]
    return [str(_built() / "login"), library, *where, ",".join(topics), *values]


def _built() -> Path:
    (go,) = need("go")

    def build(working: Path) -> None:
        step = [str(go), "build", "-trimpath", "-buildvcs=false", "-o", f"{working}/", ".", "./login"]
        builds.run(step, folder=PROJECT)

    return builds.built("go", [PROJECT / source for source in SOURCES], build)


class FranzClient(SteeredClient):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("franz-go", command("franz-go", bootstrap), EVERYTHING, ALL_COMPRESSIONS)


class FranzAdmin(SteeredAdmin):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("franz-go", command("franz-go", bootstrap))


class SaramaClient(SteeredClient):
    """sarama does what the version allows; it has no subscription to a pattern, ever."""

    def __init__(self, bootstrap: str, version: str) -> None:
        can = EVERYTHING - {Can.SUBSCRIBE_TO_PATTERN}
        compressions = set(ALL_COMPRESSIONS)
        if version.startswith("0.8"):
            can -= {Can.SET_TIMESTAMPS, Can.SEND_HEADERS, Can.READ_COMMITTED, Can.LOG_IN, Can.TRANSACT}
            compressions -= {Compression.LZ4, Compression.ZSTD}
        super().__init__(f"sarama-{version}", command("sarama", bootstrap, version), can, frozenset(compressions))


class SaramaAdmin(SteeredAdmin):
    def __init__(self, bootstrap: str, version: str) -> None:
        super().__init__(f"sarama-{version}", command("sarama", bootstrap, version))


class KafkaGoClient(SteeredClient):
    """kafka-go takes a list of topics, no pattern, and has no transactions.

    Its read_committed still shows what was aborted, and markers too.
    """

    def __init__(self, bootstrap: str) -> None:
        can = EVERYTHING - {Can.SUBSCRIBE_TO_PATTERN, Can.READ_COMMITTED, Can.TRANSACT}
        super().__init__("kafka-go", command("kafka-go", bootstrap), can, ALL_COMPRESSIONS)


class KafkaGoAdmin(SteeredAdmin):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafka-go", command("kafka-go", bootstrap))
