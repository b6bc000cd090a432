"""A Java member of a group of one of the newer kinds: what it read, and what it was told."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients import maven
from tests.fixtures.toolchains import need

PROJECT = Path(__file__).parent / "members"
KAFKA = "4.4.0"
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a member said until it left."""

    lines: Sequence[tuple[str, ...]]
    log: str

    def of(self, kind: str) -> list[str]:
        return [line[-1] for line in self.lines if line[0] == kind]

    @property
    def values(self) -> list[str]:
        return self.of("value")

    @property
    def faults(self) -> list[tuple[str, ...]]:
        return [line[1:] for line in self.lines if line[0] == "fault"]


def run_member(kind: str, bootstrap: str, group: str, topics: Sequence[str], count: int, **config: str) -> Told:
    """Reads so many records as a member of `kind` (consumer, pair, share), and leaves."""
    properties = {"bootstrap.servers": bootstrap, "group.id": group}
    properties |= {name.replace("_", "."): value for name, value in config.items()}
    command = [str(need("java")[0]), *JVM_OPTIONS, "-cp", maven.class_path(PROJECT, KAFKA), "mesh.members.Member"]
    command += [kind, ",".join(topics), str(count), *(f"{name}={value}" for name, value in properties.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    lines = [tuple(line.split("\t")) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-4000:]
    return Told(lines, done.stderr)
