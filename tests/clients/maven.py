"""Builds a Maven project for a Kafka version, and gives its class path."""

from __future__ import annotations

from pathlib import Path

from tests.clients import builds
from tests.fixtures.toolchains import need


def class_path(project: Path, kafka_version: str, *properties: str) -> str:
    """Class path of the built project; builds it if this content was never built for this version.

    `properties` are further ones of Maven's, `name=value`; the version decides them.
    """
    need("java")

    def build(working: Path) -> None:
        (_, mvn) = need("javac", "mvn")
        command = [str(mvn), "--quiet", "--batch-mode", "--file", str(project / "pom.xml")]
        command += [f"-D{each}" for each in (f"kafka.version={kafka_version}", f"output={working}", *properties)]
        # Not --offline first: where a POM is missing, that builds a class path without what it names, and says nothing.
        builds.run([*command, "process-classes"])

    sources = [source for source in (project / "pom.xml", project / "src") if source.exists()]
    built = builds.built(f"{project.name}-{kafka_version}", sources, build)
    return f"{built / 'classes'}:{built / 'lib'}/*"
