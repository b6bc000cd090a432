"""The jars of kafka-clients on this machine: they contain Kafka's message specifications."""

from __future__ import annotations

import os
from pathlib import Path

from local.jars import jar_folder, locked_jars

LATEST_BEFORE_4 = "3.9.1"
"""Kafka 4.0 dropped the oldest versions of messages; this one still describes them."""


def client_jars() -> list[Path]:
    """That of the locked Kafka first, then the last one before 4.0, where they are."""
    maven = Path(os.environ.get("MAVEN_REPO_LOCAL") or Path.home() / ".m2" / "repository")
    folders = (maven / "org/apache/kafka/kafka-clients", jar_folder())
    found = {jar.name: jar for folder in folders for jar in _jars(folder)}
    locked = next(jar.filename for jar in locked_jars() if jar.artifact == "kafka-clients")
    return [found[name] for name in (locked, f"kafka-clients-{LATEST_BEFORE_4}.jar") if name in found]


def _jars(folder: Path) -> list[Path]:
    return sorted(folder.rglob("kafka-clients-*.jar")) if folder.is_dir() else []
