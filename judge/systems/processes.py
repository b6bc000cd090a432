"""Processes of a system that the judge started: killed, frozen, restarted, and out of disk."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from judge.faults.fault import Fault

READY_S = 90.0
STARTER = ThreadPoolExecutor(1, "starter")
"""A process on a leash ends with the thread that started it, so one thread starts all and stays."""
POLL_S = 0.1
KEEP_S = 1.0


def waited_for(condition: Callable[[], bool], what: str, within_s: float = READY_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(POLL_S)


@dataclass(slots=True)
class Owned:
    """One that the judge runs itself. Its output goes by a pipe, which has room when its disk has none."""

    name: str
    command: list[str]
    log: Path
    is_ready: Callable[[], bool]
    environment: dict[str, str]
    goodbye: signal.Signals = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    hears: Callable[[str], None] = lambda line: None
    """Gets each line of its output."""
    starts: threading.Lock = field(default_factory=threading.Lock)
    """Held where the process begins or ends: else `Keeper` could start a second one while a fault ends the first."""

    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def start(self) -> None:
        self.launch()
        waited_for(self.is_up, f"{self.name} is ready, see {self.log}")

    def launch(self) -> None:
        with self.starts:
            self.process = STARTER.submit(self._launched).result()

    def launch_again(self) -> int | None:
        """Starts it again if it has ended by itself; the exit code then."""
        with self.starts:
            code = None if self.process is None else self.process.poll()
            if code is not None:
                self.process = STARTER.submit(self._launched).result()
            return code

    def _launched(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
        )
        threading.Thread(target=self._keep_output, args=(process,), daemon=True).start()
        return process

    def _keep_output(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None, "a pipe"
        with self.log.open("ab") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                self.hears(line.decode(errors="replace"))

    def is_up(self) -> bool:
        """Starts it again where it ended: a port that is not free yet, a lock of the one before."""
        self.launch_again()
        return self.is_ready()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(self.goodbye)

    def _end(self, number: signal.Signals) -> None:
        with self.starts:
            process, self.process = self.process, None
            if process is None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            try:
                process.wait(READY_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(READY_S)


@dataclass(slots=True)
class Keeper:
    """Restarts parts that ended by themselves, as every supervisor does, and reports each restart."""

    parts: Sequence[Owned]
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(KEEP_S):
            for part in self.parts:
                if (code := part.launch_again()) is not None:
                    print(f"{part.name} ended by itself with {code}, see {part.log}", flush=True)


def faults_of(part: Owned, *, disk: bool = False) -> list[Fault]:
    """Kill, restart, freeze, and where the part writes files, a disk that takes nothing more."""

    def limited(size: str) -> Callable[[], None]:
        def limit() -> None:
            if (pid := part.pid()) is not None:
                for each in (pid, *_children(pid)):
                    _limit_files(each, size)

        return limit

    def with_disk_again() -> None:
        """A broker whose disk refused a write halts; it needs a start then."""
        limited("unlimited")()
        part.stop()
        part.start()

    parts = frozenset({part.name})
    found = [
        Fault(f"kill {part.name}", part.kill, part.start, parts=parts),
        Fault(f"restart {part.name}", part.stop, part.start, 1.0, parts),
        Fault(f"freeze {part.name}", signalled(part, signal.SIGSTOP), signalled(part, signal.SIGCONT), 12.0, parts),
    ]
    if disk:
        found.append(Fault(f"disk of {part.name} full", limited("0"), with_disk_again, 3.0, parts))
    return found


def signalled(part: Owned, number: signal.Signals) -> Callable[[], None]:
    def send() -> None:
        if (pid := part.pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    return send


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return []


def _limit_files(pid: int, size: str) -> None:
    """The soft limit of a file's bytes. Asked for as the user that the process belongs to: root may lack the right."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        user = Path(f"/proc/{pid}").stat().st_uid
        command = ["prlimit", f"--pid={pid}", f"--fsize={size}:"]
        run = subprocess.run(command, user=user, capture_output=True, text=True, timeout=READY_S, check=False)
        if run.returncode and Path(f"/proc/{pid}").exists():
            raise OSError(f"prlimit of {pid}: {run.stderr.strip()}")
