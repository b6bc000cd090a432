"""One driver: the process that carries out a job, its output, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import structlog

from mesh.rpc import replays
from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptance, Answer, answer_of_line
from services.pipeline.driver_protocol.job_reports import JobReport
from services.pipeline.driver_protocol.orders import report_from_line
from services.pipeline.serving import metrics
from services.pipeline.serving.driver_log import DriverLog
from services.pipeline.serving.redaction import Hiding

PROGRAM = (sys.executable, "-m", "services.pipeline.driver")
LONGEST_LINE = 16 * 1024 * 1024
"""Bytes; a plan of 10,000 partitions is about 3 MB."""
EXIT_POLL_S = 0.05
LAST_WORDS_S = 5.0
"""Seconds that the pipes of an ended driver may stay open."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a driver ended."""

    code: int
    """Exit code; negative: the number of the signal that ended the driver."""
    last_word: str = ""

    def __str__(self) -> str:
        how = f"was ended by {signal.Signals(-self.code).name}" if self.code < 0 else f"exited with {self.code}"
        return f"{how}: {self.last_word}" if self.last_word and self.code else how


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a driver."""

    kind: str
    """`replay`, `audit`, ...: the label in metrics."""
    name: str
    """The name in logs: `replays/…`, or the kind."""
    arguments: tuple[str, ...]
    """Arguments of `kafka-mesh pipeline`."""
    order: str = ""
    """The first line of the driver's stdin; it may contain secrets."""
    secrets: frozenset[str] = frozenset()
    """Texts that are removed from the driver's output."""
    program: Sequence[str] = PROGRAM
    silence_s: float = math.inf
    """Seconds without a report or progress of a batch, after which the driver counts as hanging, and is killed."""
    niceness: int = 0
    """The driver's niceness, as `nice` counts it."""


class Driver:
    """A running driver. It ends when this process does: see `services/pipeline/driver.py`."""

    def __init__(self, command: Command, process: asyncio.subprocess.Process) -> None:
        """See `started`."""
        self._command = command
        self._process = process
        self._hiding = Hiding(command.secrets)
        self._log = DriverLog(command.name, self._hiding)
        self._is_over = False
        self._heard_at = asyncio.get_running_loop().time()
        """Time of the last report, minus the report's time without progress of a batch."""

    @classmethod
    async def started(cls, command: Command) -> Driver:
        process = await asyncio.create_subprocess_exec(
            *command.program,
            *(("--nice", str(command.niceness)) if command.niceness else ()),
            *command.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LONGEST_LINE,
        )
        metrics.driver_starts.labels(command.kind).inc()
        log.info("driver started", job=command.name, pid=process.pid)
        return cls(command, process)

    async def run(
        self,
        on_report: Callable[[replays.ReportReplayRequest], None] = lambda _: None,
        on_job_line: Callable[[JobReport | Answer], None] = lambda _: None,
    ) -> Ending:
        """Returns when the driver has ended and its output is read.

        The driver is killed if this call ends in another way, or if the driver is silent for longer than the command
        allows.
        """
        running = metrics.drivers.labels(self._command.kind)
        running.inc()
        talk = (self._give_order(), self._reports(on_report, on_job_line), self._log_lines())
        hearing = [asyncio.create_task(each, name=self._command.name) for each in talk]
        try:
            hung = await self._hang_or_exit()
            code = await self._exit()
            self.kill()  # kills the rest of its group, which holds the pipes open
            await asyncio.wait(hearing, timeout=LAST_WORDS_S)
        finally:
            running.dec()
            self.kill()
            for task in hearing:
                task.cancel()
            await asyncio.wait(hearing)
            await self._put_away()
            self._is_over = True
        ending = Ending(code, hung or self._log.last_word)
        log.info("driver ended", job=self._command.name, how=str(ending))
        return ending

    async def _put_away(self) -> None:
        """Closes the pipes of a process that is dead, or is about to be."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), LAST_WORDS_S)

    def tell(self, acceptance: Acceptance) -> None:
        """Sends an acceptance to the job. A driver that has just ended does not get it."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(acceptance.to_line().encode() + b"\n")

    async def stop(self, within_s: float) -> None:
        """Sends SIGTERM to the driver, and kills the driver if it still runs after `within_s` seconds."""
        if self._process.returncode is None:
            self._process.terminate()  # not the group: the driver still needs Spark's JVM
        try:
            await asyncio.wait_for(self._exit(), within_s)
        except TimeoutError:
            log.warning("driver killed, for it did not stop", job=self._command.name, seconds=within_s)
            self.kill()

    def kill(self) -> None:
        """Kills the driver and its process group."""
        if self._is_over:
            return  # another process group may have the number by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _exit(self) -> int:
        """Waits for the exit.

        asyncio's `wait` also waits for the pipes, which a child of the driver may hold for longer.
        """
        while self._process.returncode is None:
            await asyncio.sleep(EXIT_POLL_S)
        return self._process.returncode

    async def _hang_or_exit(self) -> str:
        """Returns when the driver has ended, or hangs and is killed; the text is the reason of a kill."""
        loop = asyncio.get_running_loop()
        while self._process.returncode is None:
            if loop.time() - self._heard_at > self._command.silence_s:
                metrics.driver_hangs.labels(self._command.kind).inc()
                log.warning("driver killed, for it hangs", job=self._command.name, silent_s=self._command.silence_s)
                self.kill()
                return f"it reported no progress for {self._command.silence_s:g} s"
            await asyncio.sleep(EXIT_POLL_S)
        return ""

    async def _give_order(self) -> None:
        """Writes the order. stdin stays open: when it closes, the driver knows that this process has ended."""
        assert self._process.stdin is not None
        if self._command.order:
            self._process.stdin.write(self._command.order.encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # it ended before it read the order; its log says why
                await self._process.stdin.drain()

    async def _reports(
        self,
        on_report: Callable[[replays.ReportReplayRequest], None],
        on_job_line: Callable[[JobReport | Answer], None],
    ) -> None:
        assert self._process.stdout is not None
        async for line in _lines(self._process.stdout):
            now = asyncio.get_running_loop().time()
            if (of_job := job_reports.of_line(line)) is not None:
                self._heard_at = now - of_job.stuck_s  # a driver may send reports while its batch hangs
                metrics.note(of_job)
                on_job_line(of_job)
                continue
            self._heard_at = now
            if (answer := answer_of_line(line)) is not None:
                on_job_line(answer)
                continue
            try:
                report = report_from_line(line.decode())
            except ValueError:  # another encoding, or no report
                log.warning("a driver wrote a line that is no report", job=self._command.name, bytes=len(line))
                continue
            report.description = self._hiding.hide(report.description)  # control keeps the text for good
            on_report(report)

    async def _log_lines(self) -> None:
        assert self._process.stderr is not None
        async for line in _lines(self._process.stderr):
            self._log.take(line)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines without line breaks; a line that is too long comes in pieces."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            line = await stream.read(error.consumed)
        except asyncio.IncompleteReadError as end:
            if end.partial:
                yield end.partial
            return
        yield line.rstrip(b"\r\n")
