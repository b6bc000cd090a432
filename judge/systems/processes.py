"""Processes of a system that the judge started: killed, frozen, restarted, and out of disk."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from judge.faults.fault import Fault

READY_S = 90.0
STARTER = ThreadPoolExecutor(1, "starter")
"""A process on a leash ends with the thread that started it, so one thread starts all and stays."""
POLL_S = 0.1


class Part(Protocol):
    """A process, and what can be done to it."""

    name: str

    def kill(self) -> None: ...

    def start(self) -> None:
        """Returns when it is ready."""

    def stop(self) -> None: ...

    def pid(self) -> int | None: ...


def waited_for(condition: Callable[[], bool], what: str, within_s: float = READY_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(POLL_S)


@dataclass(slots=True)
class Supervised:
    """One that `kafka-mesh up` runs; a file in its folder `down` keeps it away."""

    name: str
    state: Path

    def pid(self) -> int | None:
        found: int | None = self._row()["pid"]
        return found

    def kill(self) -> None:
        pid = self.pid()
        self._stay_away()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        waited_for(lambda: self._row()["state"] == "down", f"{self.name} is down")

    def stop(self) -> None:
        self._stay_away()
        waited_for(lambda: self._row()["state"] == "down", f"{self.name} is down")

    def start(self) -> None:
        (self.state / "down" / self.name).unlink(missing_ok=True)
        waited_for(lambda: self._row()["state"] == "ready", f"{self.name} is ready")

    def _stay_away(self) -> None:
        (self.state / "down").mkdir(exist_ok=True)
        (self.state / "down" / self.name).touch()

    def _row(self) -> dict[str, Any]:
        rows: dict[str, dict[str, Any]] = json.loads((self.state / "processes.json").read_text(encoding="utf-8"))
        return rows[self.name]


@dataclass(slots=True)
class Owned:
    """One that the judge runs itself."""

    name: str
    command: list[str]
    log: Path
    is_ready: Callable[[], bool]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def start(self) -> None:
        self.launch()
        waited_for(self._is_up, f"{self.name} is ready, see {self.log}")

    def launch(self) -> None:
        self.process = STARTER.submit(self._launched).result()

    def _launched(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def _is_up(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            self.launch()  # a port that is not free yet, a lock of the one before
        return self.is_ready()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        try:
            self.process.wait(READY_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(READY_S)
        self.process = None


def faults_of(part: Part, *, disk: bool = False) -> list[Fault]:
    """Kill, restart, freeze, and where the part writes files, a disk that takes nothing more."""

    def signalled(number: signal.Signals) -> Callable[[], None]:
        def send() -> None:
            if (pid := part.pid()) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

        return send

    def limited(size: int) -> Callable[[], None]:
        def limit() -> None:
            if (pid := part.pid()) is not None:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        return limit

    def with_disk_again() -> None:
        """A broker whose disk refused a write halts; it needs a start then."""
        limited(resource.RLIM_INFINITY)()
        part.stop()
        part.start()

    found = [
        Fault(f"kill {part.name}", part.kill, part.start),
        Fault(f"restart {part.name}", part.stop, part.start, longest_s=1.0),
        Fault(f"freeze {part.name}", signalled(signal.SIGSTOP), signalled(signal.SIGCONT), longest_s=12.0),
    ]
    if disk:
        found.append(Fault(f"disk of {part.name} full", limited(0), with_disk_again, longest_s=3.0))
    return found
