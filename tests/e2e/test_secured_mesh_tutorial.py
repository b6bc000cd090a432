"""The page "A secured mesh of two gateways", block by block: it starts all that it needs, on ports of the test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from local.processes import log_tail
from tests.fixtures.pages import ROOT, Step, steps, take
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import WITHIN_S

PAGE = ROOT / "docs" / "tutorials" / "secured-mesh.md"
PORTS = (19193, 19194, 19293, 19294, 15432, 7070, 7170, 7071, 7171, 9093, 9094, 7172, 7182)
"""As the page writes them."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The reader's folder. At the end, processes of the page that still run are named and killed."""
    yield tmp_path
    for file in sorted(tmp_path.glob("secured/*.pid")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text(encoding="ascii")), signal.SIGKILL)
            print(f"{file.stem} still ran")
        print(file.stem, log_tail(file.with_suffix(".log")), sep="\n")


def started(folder: Path) -> list[int]:
    return [int(file.read_text(encoding="ascii")) for file in folder.glob("secured/*.pid")]


def typed_in_one_terminal(found: list[Step]) -> Iterator[Step]:
    """Each block is a shell of its own here: the variables of earlier blocks come first."""
    exported = ""
    for step in found:
        yield replace(step, typed=exported + step.typed)
        exported += "".join(line for line in step.typed.splitlines(keepends=True) if line.startswith("export "))


@pytest.mark.timeout(400)
def test_from_a_checkout_to_two_gateways_that_ask_for_certificates(kafka_jars: None, folder: Path) -> None:
    need("openssl")
    first = free_block(len(PORTS))
    instead = {str(port): str(first + number) for number, port in enumerate(PORTS)}
    found = steps(PAGE.read_text(encoding="utf-8"))
    assert len(found) >= 14
    for step in typed_in_one_terminal(found):
        take(step, folder, instead)
    processes = started(folder)
    assert len(processes) == 7
    psutil.wait_procs([psutil.Process(pid) for pid in processes if psutil.pid_exists(pid)], WITHIN_S)
    assert not [pid for pid in processes if psutil.pid_exists(pid)]
