"""Client programs as child processes: run to their end, or steered line by line while they speak JSON."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, ClientError

# A line holds one record, or one answer of an admin call such as all settings of a topic.
LONGEST_LINE_BYTES = 1 << 20
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
    """A program that prints one JSON object a line; each goes to `on_line` as it comes."""

    def __init__(
        self, process: asyncio.subprocess.Process, brief: str, on_line: Callable[[dict[str, Any]], None]
    ) -> None:
        self._process = process
        self._brief = brief
        self._on_line = on_line
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._readers = asyncio.gather(self._read_stdout(), self._read_stderr())

    @classmethod
    async def start(cls, command: Sequence[str], on_line: Callable[[dict[str, Any]], None]) -> Self:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE_BYTES,
        )
        return cls(process, _brief(command), on_line)

    async def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def end(self, last_words: str = "", timeout: float = OPERATION_TIMEOUT_SECONDS) -> None:
        """Says the last words, closes stdin and waits for the end; kills the program if that does not come."""
        try:
            async with asyncio.timeout(timeout):
                if self._process.returncode is None:
                    assert self._process.stdin is not None
                    self._process.stdin.write(last_words.encode())
                    self._process.stdin.close()
                await self.finished()
        except TimeoutError:
            raise ClientError(f"no end after {timeout:.0f} s: {self._brief}\n{self.stderr}") from None
        finally:
            await self.kill()

    async def finished(self) -> None:
        """Returns when the program has ended and all that it printed was handled."""
        await asyncio.shield(self._readers)
        code = await self._process.wait()
        if code != 0:
            raise ClientError(f"exit code {code}: {self._brief}\n{self.stderr}")

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def stderr(self) -> str:
        return "\n".join(self._stderr)

    async def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._on_line(json.loads(line))

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._stderr.append(line.decode(errors="replace").rstrip())


def _brief(command: Sequence[str]) -> str:
    """The command without its class path, which would fill the screen."""
    return " ".join(part if len(part) < 200 else part[:60] + "..." for part in command)
