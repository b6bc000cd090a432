"""KafkaJS, by a program for Node; npm installs what its lock file names."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.clients import builds
from tests.clients.contract import EVERYTHING, Compression
from tests.clients.steered import SteeredAdmin, SteeredClient
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent
SOURCES = [PROJECT / name for name in ("package.json", "package-lock.json", "steer.mjs", "clients.mjs")]
# LZ4 and zstd come as native modules, for which npm wants a C++ compiler.
COMPRESSIONS = frozenset({Compression.NONE, Compression.GZIP, Compression.SNAPPY})


def command(bootstrap: str) -> list[str]:
    node, npm = need("node", "npm")

    def build(working: Path) -> None:
        for source in SOURCES:
            shutil.copy(source, working)
        builds.run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder=working)

    return [str(node), str(builds.built("kafkajs", SOURCES, build) / "clients.mjs"), bootstrap]


class KafkaJsClient(SteeredClient):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafkajs", command(bootstrap), EVERYTHING, COMPRESSIONS)


class KafkaJsAdmin(SteeredAdmin):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafkajs", command(bootstrap))
