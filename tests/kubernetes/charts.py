"""The chart as Helm renders it, and its objects."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from docs.chart import CHART
from tests.kubernetes import tools

NAMESPACE = "mesh"
RELEASE = "kafka-mesh"
VALUES = Path(__file__).parent / "values"
SETS = ("default", "minimal", "full", "deployment")
"""Values for which the chart is checked: its own, and the files of the folder."""
HELM_TIMEOUT_SECONDS = 60.0

Object = dict[str, Any]


def options(values: str) -> list[str]:
    """The options that name these values to Helm."""
    return [] if values == "default" else ["--values", str(VALUES / f"{values}.yaml")]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """A run of Helm, which may have failed."""
    command: Sequence[str | Path] = [tools.program("helm"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HELM_TIMEOUT_SECONDS, check=False)


def template(*words: str) -> subprocess.CompletedProcess[str]:
    release = f"--kube-version={tools.kubernetes_release()}"
    return helm("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", release, *words)


@cache
def text(values: str) -> str:
    """The manifests for these values."""
    run = template(*options(values))
    assert run.returncode == 0, run.stderr
    return run.stdout


@cache
def objects(values: str) -> tuple[Object, ...]:
    return tuple(each for each in yaml.safe_load_all(text(values)) if each)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet of the chart."""

    values: str
    name: str
    spec: Object

    @property
    def pod(self) -> Object:
        found: Object = self.spec["template"]["spec"]
        return found

    @property
    def container(self) -> Object:
        (found,) = self.pod["containers"]
        return dict(found)

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.spec["template"]["metadata"]["labels"]
        return found

    def __str__(self) -> str:
        return f"{self.values}-{self.name}"


def workloads(values: str) -> list[Workload]:
    kinds = ("Deployment", "StatefulSet")
    return [
        Workload(values, each["metadata"]["name"], each["spec"]) for each in objects(values) if each["kind"] in kinds
    ]


def workload(values: str, name: str) -> Workload:
    """The one that is named RELEASE-name."""
    return next(each for each in workloads(values) if each.name == f"{RELEASE}-{name}")


def of_kind(values: str, kind: str) -> dict[str, Object]:
    """The objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in objects(values) if each["kind"] == kind}
