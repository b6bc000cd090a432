"""`meshctl apply --watch` beside a real control: the mesh follows a file, as it does a ConfigMap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.meshctl.conftest import Meshctl

WITHIN_S = 60.0
RESYNC_S = 10


@pytest.fixture
def prefix(meshctl: Meshctl, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> str:
    meshctl("cluster", "register", "c1", kafka_c1.bootstrap)
    return unique_name("followed")


class Followed:
    """A file, and the program that follows it."""

    def __init__(self, path: Path, control: str) -> None:
        self.path = path
        self.log = path.with_suffix(".log")
        self._environment = {**os.environ, "MESHCTL_ADDRESS": control}

    def write(self, text: str) -> None:
        """As Kubernetes does: another file takes the name."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.path)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "meshctl", "apply", "-f", str(self.path), "--watch"]
        with self.log.open("wb") as output:
            return subprocess.Popen(
                [*command, "--resync", f"{RESYNC_S}"], env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )

    def says(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text(encoding="utf-8"), f"{self.log} has {text!r}", WITHIN_S)


@pytest.fixture
def followed(tmp_path: Path, control: str) -> Iterator[tuple[Followed, subprocess.Popen[bytes]]]:
    file = Followed(tmp_path / "mesh.yaml", control)
    file.write("rules: []\n")
    process = file.start()
    try:
        yield file, process
    finally:
        process.kill()
        process.wait(WITHIN_S)


def test_the_mesh_follows_a_file(
    followed: tuple[Followed, subprocess.Popen[bytes]], meshctl: Meshctl, prefix: str
) -> None:
    file, process = followed

    def rules() -> set[str]:
        listed = json.loads(meshctl("export", "-o", "json").stdout)["rules"]
        names = {str(each.get("topic", "")) for each in listed}
        return {name for name in names if name.startswith(prefix)}

    def follows(*names: str) -> None:
        wanted = {f"{prefix}-{name}" for name in names}
        wait_until(lambda: rules() == wanted, f"the rules are {wanted}", WITHIN_S)

    def text(*names: str) -> str:
        return "rules:\n" + "".join(f"- {{topic: {prefix}-{name}, target_cluster: c1}}\n" for name in names)

    file.says("the mesh is as")
    file.write(text("apples"))
    follows("apples")
    file.write(text("apples", "pears"))
    follows("apples", "pears")
    file.path.unlink()
    file.says("can't be read: No such file or directory")
    file.write("rules:\n- {topic: nothing, target_cluster: nowhere}\n")
    file.says("nowhere")
    meshctl("rule", "remove", "--topic", f"{prefix}-pears")
    file.write(text("apples", "pears"))
    follows("apples", "pears")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 0


def test_standard_input_is_no_file_to_follow(meshctl: Meshctl) -> None:
    refused = meshctl("apply", "-f", "-", "--watch", check=False)
    assert refused.returncode == 2
    assert "--watch needs a file with a name" in refused.stderr
