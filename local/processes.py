"""Child processes that never outlive their parent, and stop within a bound.

Each child leads a session of its own, so that a Ctrl-C in the terminal reaches the supervisor alone, which then stops
all in order; and its whole group can be signalled. On Linux the kernel kills a child whose parent died. Elsewhere the
next start does: see `kill_leftovers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from local.leash import on_leash

KILL_WAIT_S = 10.0
LOG_LIMIT_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 4000
SAME_START_S = 0.5  # a pid belongs to the process we started when their start times agree to this


class Child:
    """A running program, its log file, and how it is asked to stop."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, stop_signal: signal.Signals) -> None:
        self._process = process
        self._stop_signal = stop_signal
        self.log = log
        self.started_at = _start_time(process.pid)

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        log: Path,
        settings: Mapping[str, str],
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> Child:
        """Start `command` with `settings` added to our environment, its output appended to `log`."""
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _keep_bounded(log)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *on_leash(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **settings},
                start_new_session=True,
            )
        return cls(process, log, stop_signal)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self, within_s: float) -> None:
        """Ask the child to stop; kill the rest of its group after the bound."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(self._stop_signal)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), within_s)
        await self.kill()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.exit_code is None:
            await asyncio.wait_for(self._process.wait(), KILL_WAIT_S)


def log_tail(log: Path, lines: int = 12) -> str:
    """The end of a log, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def describe_exit(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"exited with {code}"


def kill_leftovers(started: Mapping[str, tuple[int, float]]) -> list[str]:
    """End processes that an earlier run left: those whose pid and start time are both as noted."""
    ended = []
    for name, (pid, started_at) in started.items():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(pid)
            if abs(process.create_time() - started_at) < SAME_START_S:
                process.kill()
                process.wait(KILL_WAIT_S)
                ended.append(name)
    return ended


def _start_time(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return 0.0


def _keep_bounded(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".log.1"))
