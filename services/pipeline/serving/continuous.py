"""A job that goes on for as long as serve does: its driver is started again whenever it ends, control or not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from services.pipeline.acceptances import Acceptance, Answer
from services.pipeline.job_reports import JobReport
from services.pipeline.serving import metrics
from services.pipeline.serving.driver import Command, Driver, Ending
from services.pipeline.serving.restarts import Restarts

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STEADY_S = 60.0
"""A driver that has run for so long has no failures before it."""
FAILURES_TO_TELL = 3
"""In a row, until this member says that it is not ready: one may be of a cluster that was away for a moment."""

log = structlog.get_logger(__name__)


class ContinuousDriver:
    """Keeps one job running."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._driver: Driver | None = None
        self._restarts = Restarts(FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S)
        self._last = ""
        self._stopping = asyncio.Event()
        self._accepting: dict[str, tuple[Acceptance, Callable[[Answer], None]]] = {}
        self.reports: dict[str, JobReport] = {}
        """The last one of each cluster."""

    @property
    def name(self) -> str:
        return self._command.name

    @property
    def has_driver(self) -> bool:
        return self._driver is not None

    @property
    def how_it_ended_last(self) -> str:
        """Of the driver before this one; empty for one that has run steadily since."""
        return self._last if self._restarts.in_a_row and not (self.has_driver and self._restarts.is_steady) else ""

    @property
    def trouble(self) -> str:
        """Why it can't be kept running; empty while it can."""
        if self._restarts.in_a_row < FAILURES_TO_TELL or (self._driver is not None and self._restarts.is_steady):
            return ""
        return f"job {self._command.name}: its driver {self._last} ({self._restarts.in_a_row} times in a row)"

    async def run(self) -> None:
        """Until it is stopped; when this is cancelled, its driver is killed."""
        while not self._stopping.is_set():
            self._restarts.began()
            try:
                self._last = str(await self._drive())
            except OSError as error:  # the system is out of processes, or of handles
                self._last = f"can't be started: {error}"
            if self._stopping.is_set():
                return
            metrics.driver_deaths.labels(self._command.kind).inc()
            pause_s = self._restarts.failed()
            log.warning("a job ended", job=self._command.name, how=self._last, again_in_seconds=round(pause_s, 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def _drive(self) -> Ending:
        driver = self._driver = await Driver.started(self._command)
        if self._stopping.is_set():  # nobody could tell it while it was being started
            driver.kill()
        for acceptance, _ in self._accepting.values():
            driver.tell(acceptance)
        up = metrics.job_up.labels(self._command.name)
        up.set(1)
        try:
            return await driver.run(on_job_line=self._heard)
        finally:
            self._driver = None
            up.set(0)

    def accept(self, acceptance: Acceptance, answered: Callable[[Answer], None]) -> None:
        """A loss, on the word of an operator. Each driver is told until one has answered."""
        is_new = acceptance.order not in self._accepting
        self._accepting[acceptance.order] = acceptance, answered
        if is_new and self._driver is not None:
            self._driver.tell(acceptance)

    def forget(self, order: str) -> None:
        """Nobody waits for the answer any more."""
        self._accepting.pop(order, None)

    def _heard(self, line: JobReport | Answer) -> None:
        if isinstance(line, JobReport):
            before = self.reports.get(line.cluster)
            self.reports[line.cluster] = line if before is None else line.with_what_stays_of(before)
            return
        _, answered = self._accepting.pop(line.order, (None, None))
        if answered is not None:
            answered(line)

    async def stop(self, within_s: float) -> None:
        """Its driver may put everything in order, and is not started again."""
        self._stopping.set()
        if self._driver is not None:
            await self._driver.stop(within_s)

    def kill(self) -> None:
        """Its driver ends at once, and is not started again."""
        self._stopping.set()
        if self._driver is not None:
            self._driver.kill()
