"""The child process that moves records: the router starts it, sends its orders, reads its output, and restarts it.

It ends with this router, whatever happens to it: its stdin is a pipe that breaks then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence

import structlog

from services.router import metrics
from services.router.forwarding.orders import LARGEST_LINE, Order, Report, order_line, report_of

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between two starts of processes that end one after another."""
LONG_LIFE = 60.0
"""Seconds after which an end counts as the first one again."""
LARGEST_BACKLOG = 4 * LARGEST_LINE
"""Bytes of orders that the process has not read; beyond that it hangs."""
LONGEST_SILENCE = 60.0
"""Seconds without a word of a process that runs rules; it speaks once a second, and beyond this it hangs."""
STOP_TIMEOUT = 1.0
"""Seconds that the process may take to end when its stdin does; its rules have ended before, where there was time."""

log = structlog.get_logger(__name__)


class Worker:
    """One process at a time. `run` until cancelled; orders are sent while one is there."""

    def __init__(
        self,
        command: Sequence[str],
        on_start: Callable[[], None],
        on_report: Callable[[Report], None],
        on_end: Callable[[str], None],
    ) -> None:
        """`on_start`: a new process waits for all of its orders; `on_end`: it has ended, and how."""
        self._command = command
        self._on_start = on_start
        self._on_report = on_report
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._heard = 0.0

    @property
    def is_there(self) -> bool:
        return self._process is not None

    @property
    def silence(self) -> float:
        """Seconds since the process said something."""
        return time.monotonic() - self._heard

    async def run(self) -> None:
        """One process after another."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            reason = await self._live()
            if time.monotonic() - began > LONG_LIFE:
                pause = FIRST_PAUSE
            metrics.record_workers_ended.inc()
            log.error("the worker of record rules ended; starting another one", reason=reason, next_try_s=pause)
            self._on_end(f"the router's worker process ended ({reason}); another one starts within {pause:g} s")
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, LONGEST_PAUSE)

    def send(self, orders: Iterable[Order]) -> None:
        """Sends orders to the process. Without a process it sends nothing, because the next process gets all orders."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.writelines(order_line(order) for order in orders)
        if process.stdin.transport.get_write_buffer_size() > LARGEST_BACKLOG:
            self.kill("it reads no orders")

    def kill(self, reason: str) -> None:
        """Ends the process at once; `run` starts another one."""
        if self._process is not None and self._process.returncode is None:
            log.error("the worker of record rules is killed", reason=reason)
            self._process.kill()

    async def _live(self) -> str:
        """The life of one process; how it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LARGEST_LINE,
                start_new_session=True,  # a signal to our group is ours: we let the rules end in order
            )
        except OSError as error:
            return f"it can't be started: {error}"
        self._process, self._heard = process, time.monotonic()
        try:
            self._on_start()
            await self._listen(process)
            return f"exit {await process.wait()}"
        finally:
            self._process = None
            await _end(process)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "it was started with pipes"
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                self.kill(f"it said a line of more than {LARGEST_LINE} bytes")
                return
            if not line:
                return
            self._heard = time.monotonic()
            try:
                self._on_report(report_of(line))
            except (ValueError, KeyError) as error:
                log.warning("the worker of record rules wrote a line that is no report", reason=str(error))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Its stdin ends, so it lets go of everything and ends; where it does not, it is killed."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        log.error("the worker of record rules does not end by itself; killing it", seconds=STOP_TIMEOUT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
