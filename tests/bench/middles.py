"""Processes that a benchmark puts in the middle: started, waited for, and stopped whatever comes of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from local.leash import on_leash
from local.processes import log_tail
from local.readiness import Condition
from tests.fixtures.waiting import wait_unless

START_S = 90.0
STOP_S = 20.0
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(
    command: Sequence[str], log: Path, ready: Condition, environment: Mapping[str, str], cwd: Path = ROOT
) -> Iterator[psutil.Process]:
    """The process, from when it is ready."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            on_leash(command), cwd=cwd, env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:

        def obstacle() -> str | None:
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode}:\n{log_tail(log)}")
            return ready.unmet()

        wait_unless(obstacle, f"{log.stem} is ready", START_S)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)


def cpu_s(process: psutil.Process) -> float:
    """User and system seconds so far, from the kernel's counters of the process, such as /proc/<pid>/stat."""
    times = process.cpu_times()
    return float(times.user + times.system)


def listener(address: str) -> psutil.Process | None:
    """Who listens there; None where that is not ours to see."""
    port = int(address.rpartition(":")[2])
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                process = psutil.Process(connection.pid)
                cpu_s(process)
                return process
    except psutil.Error:
        return None
    return None
