"""The page "A sidecar in ten minutes", block by block, with the backend of each language."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.leash import on_leash
from local.processes import log_tail
from local.supervisor import State
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.meshes import BIN, Mesh
from tests.fixtures.pages import ROOT, blocks, paste
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import WITHIN_S, wait_unless, wait_until
from tests.integration.sidecar.world import Kafka

PAGE = ROOT / "docs" / "tutorials" / "sidecar.md"
BLOCKS = blocks(PAGE.read_text(encoding="utf-8"))
FIXES = re.findall(r"^\| (python|node|go) \| `(.*?)` \| `(.*?)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
pytestmark = pytest.mark.timeout(300)

PROGRAMS = {"python": "python3", "node": "node", "go": "go"}


class Desk:
    """The terminals of the page's reader. Addresses and the topic are those of the test."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        backend, sidecar = free_block(1), free_block(2)
        self.backend_port = str(backend)
        self._folder = folder
        self._instead = {
            "localhost:9092": bootstrap,
            "localhost:8084": f"localhost:{sidecar}",
            "orders": topic,
            "=shop": f"={topic}-shop",
            ".venv/bin/": f"{BIN}/",
            "examples/": f"{folder}/",
        }
        self._settings = {
            "KAFKA_MESH_SIDECAR_LISTEN": f"127.0.0.1:{sidecar}",
            "KAFKA_MESH_SIDECAR_METRICS_LISTEN": f"127.0.0.1:{sidecar + 1}",
            "KAFKA_MESH_SIDECAR_STATE_DIR": str(folder / "state"),
            "KAFKA_MESH_SIDECAR_BACKEND_URL": f"http://localhost:{backend}",
        }

    def here(self, text: str) -> str:
        for told, found in self._instead.items():
            text = text.replace(told, found)
        return text

    @contextlib.contextmanager
    def terminal(self, block: str) -> Iterator[Path]:
        """The block runs as long as the context; its output so far."""
        output = self._folder / f"terminal-{free_block(1)}.log"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                on_leash(["bash", "-c", self.here(block)]),
                env={**os.environ, **self._settings},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        try:
            yield output
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # `go run` has a child
            process.wait(WITHIN_S)

    def type(self, block: str) -> str:
        """The output of the block, which ends by itself."""
        run = subprocess.run(
            ["bash", "-ec", self.here(block.replace("curl ", "curl -sS --fail-with-body "))],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert run.returncode == 0, f"{block}\n{run.stdout}{run.stderr}"
        return run.stdout


def await_line(output: Path, line: str) -> None:
    wait_unless(lambda: None if line in output.read_text(encoding="utf-8").splitlines() else log_tail(output), line)


def dead_letters(desk: Desk, look: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(desk.type(look))
    return found


def backend_of(desk: Desk, language: str, folder: Path) -> tuple[str, Path]:
    """The block that starts the backend, and the test's copy of its file."""
    (start,) = [block for block in BLOCKS if f"examples/sidecar/{language}/" in block]
    (source,) = (ROOT / "examples" / "sidecar" / language).glob("backend.*")
    copy = folder / "sidecar" / language / source.name
    copy.parent.mkdir(parents=True)
    copy.write_text(source.read_text(encoding="utf-8").replace("8081", desk.backend_port), encoding="utf-8")
    return start, copy


def test_the_kafka_may_be_the_mesh_of_make_run(own_mesh: Mesh, topic: str, tmp_path: Path) -> None:
    """Its topic is there with the first record, by the rule that the page gives."""
    need("curl", "python3")
    beside_the_mesh, *_, sidecar, produce, _, _ = BLOCKS
    paste(beside_the_mesh, own_mesh.state.parent)
    own_mesh.wait_for("sidecar", State.DOWN)
    desk = Desk(tmp_path, own_mesh.gateway, topic)
    start, _ = backend_of(desk, "python", tmp_path)
    with desk.terminal(sidecar), desk.terminal(f"PYTHONUNBUFFERED=1 {start}") as backend:
        wait_unless(lambda: obstacle_to(desk, produce), "the record is in the mesh")
        await_line(backend, "alice pays 12")
    own_mesh.start("sidecar")


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_backend_receives_fails_is_fixed_and_gets_its_dead_letter(
    language: str, kafka_c1: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    need("curl", PROGRAMS[language])
    Kafka(kafka_c1.bootstrap).create(topic, 1)
    desk = Desk(tmp_path, kafka_c1.bootstrap, topic)
    start, copy = backend_of(desk, language, tmp_path)
    _, _, _, _, sidecar, produce, fail_and_look, redrive = BLOCKS
    fail, look, _ = fail_and_look.rsplit("\n", 2)

    with desk.terminal(sidecar):
        with desk.terminal(start) as backend:
            wait_unless(lambda: obstacle_to(desk, "curl localhost:8084/health/readiness"), "the sidecar is ready")
            desk.type(produce)
            await_line(backend, "alice pays 12")
            desk.type(fail)
            wait_until(lambda: len(dead_letters(desk, look)) == 1, "Bob's order is a dead letter")
            assert "bob" in json.dumps(dead_letters(desk, look))
        ((_, bug, fix),) = [each for each in FIXES if each[0] == language]
        assert bug in copy.read_text(encoding="utf-8")
        copy.write_text(copy.read_text(encoding="utf-8").replace(bug, fix), encoding="utf-8")
        with desk.terminal(start) as backend:
            desk.type(redrive)
            await_line(backend, "bob pays 5")


def obstacle_to(desk: Desk, block: str) -> str | None:
    try:
        desk.type(block)
    except AssertionError as error:
        return str(error)
    return None
