"""Client programs as child processes: run to their end, or steered line by line while they speak JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, ClientError

STDERR_LINES_KEPT = 60


@dataclass(frozen=True, slots=True)
class Output:
    stdout: str
    stderr: str


async def run(command: Sequence[str], stdin: str = "") -> Output:
    """Runs a program to its end; an exit code other than 0 becomes a ClientError that quotes what it told."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    ended = asyncio.create_task(process.communicate(stdin.encode()))
    try:
        await asyncio.wait({ended}, timeout=OPERATION_TIMEOUT_SECONDS)
        in_time = ended.done()
    finally:
        if process.returncode is None:
            process.kill()
        stdout, stderr = await ended
    if not in_time or process.returncode != 0:
        end = f"exit code {process.returncode}" if in_time else f"no end after {OPERATION_TIMEOUT_SECONDS:.0f} s"
        told = (stderr or stdout).decode(errors="replace")[-2000:]
        raise ClientError(f"{end}: {_brief(command)}\n{told}")
    return Output(stdout.decode(), stderr.decode(errors="replace"))


class JsonLines:
    """A program that prints one JSON object a line; each goes to `on_line` on the event loop as it comes.

    Threads read what the program prints. A test that blocks its event loop, while it restarts a cluster say, must not
    block the program: a Java producer that can't print what was acknowledged does not read its other answers either.
    """

    def __init__(self, command: Sequence[str], on_line: Callable[[dict[str, Any]], None]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self._brief = _brief(command)
        self._on_line = on_line
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._loop = asyncio.get_running_loop()
        self._handled: asyncio.Future[None] = self._loop.create_future()
        """Done when all that the program printed was handled."""
        for read in (self._read_stdout, self._read_stderr):
            threading.Thread(target=read, name=self._brief, daemon=True).start()

    @classmethod
    async def start(cls, command: Sequence[str], on_line: Callable[[dict[str, Any]], None]) -> Self:
        return cls(command, on_line)

    async def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    async def end(self, last_words: str = "", timeout: float = OPERATION_TIMEOUT_SECONDS) -> None:
        """Says the last words, closes stdin and waits for the end; kills the program if that does not come."""
        assert self._process.stdin is not None
        try:
            async with asyncio.timeout(timeout):
                with contextlib.suppress(BrokenPipeError):  # it has ended by itself
                    self._process.stdin.write(last_words.encode())
                    self._process.stdin.close()
                await self.finished()
        except TimeoutError:
            raise ClientError(f"no end after {timeout:.0f} s: {self._brief}\n{self.stderr}") from None
        finally:
            await self.kill()

    async def finished(self) -> None:
        """Returns when the program has ended and all that it printed was handled."""
        await asyncio.shield(self._handled)
        code = await asyncio.to_thread(self._process.wait)
        if code != 0:
            raise ClientError(f"exit code {code}: {self._brief}\n{self.stderr}")

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    @property
    def stderr(self) -> str:
        return "\n".join(self._stderr)

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(RuntimeError):  # the test is over, and its event loop is closed
            for line in self._process.stdout:
                self._loop.call_soon_threadsafe(self._take, line)
            self._loop.call_soon_threadsafe(self._take, b"")

    def _take(self, line: bytes) -> None:
        if self._handled.done():
            return
        try:
            if line:
                self._on_line(json.loads(line))
            else:
                self._handled.set_result(None)
        except Exception as fault:  # noqa: BLE001  # whoever waits for the end raises it
            self._handled.set_exception(fault)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._stderr.append(line.decode(errors="replace").rstrip())


def _brief(command: Sequence[str]) -> str:
    """The command without its class path, which would fill the screen."""
    return " ".join(part if len(part) < 200 else part[:60] + "..." for part in command)
