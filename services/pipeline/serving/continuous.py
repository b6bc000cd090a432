"""Keeps the driver of a continuous job running as long as `serve` runs, even while control is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from services.pipeline.driver_protocol.acceptances import Acceptance, Answer
from services.pipeline.driver_protocol.job_reports import JobReport
from services.pipeline.serving import metrics
from services.pipeline.serving.driver import Command, Driver, Ending
from services.pipeline.serving.restarts import Restarts

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STEADY_S = 60.0
"""Seconds after which a running driver resets the number of failures."""
FAILURES_TO_TELL = 3
"""Failures in a row until this member is not ready; one failure may come from a cluster that was away for a moment."""

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
        """The last report of each cluster."""

    @property
    def name(self) -> str:
        return self._command.name

    @property
    def has_driver(self) -> bool:
        return self._driver is not None

    @property
    def how_it_ended_last(self) -> str:
        """How the previous driver ended; empty if the current one has run steadily since."""
        return self._last if self._restarts.in_a_row and not (self.has_driver and self._restarts.is_steady) else ""

    @property
    def trouble(self) -> str:
        """The reason why the job keeps failing; empty if it does not."""
        if self._restarts.in_a_row < FAILURES_TO_TELL or (self._driver is not None and self._restarts.is_steady):
            return ""
        return f"job {self._command.name}: its driver {self._last} ({self._restarts.in_a_row} times in a row)"

    async def run(self) -> None:
        """Runs until `stop`; if this task is cancelled, the driver is killed."""
        while not self._stopping.is_set():
            self._restarts.began()
            try:
                self._last = str(await self._drive())
            except OSError as error:  # the system has too few processes or file handles
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
        if self._stopping.is_set():  # no signal could reach it during its start
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
        """Passes an operator's acceptance of a loss to each driver until a driver answers."""
        is_new = acceptance.order not in self._accepting
        self._accepting[acceptance.order] = acceptance, answered
        if is_new and self._driver is not None:
            self._driver.tell(acceptance)

    def forget(self, order: str) -> None:
        """Drops an acceptance: nobody waits for the answer any more."""
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
        """Stops the driver in order; no other driver is started."""
        self._stopping.set()
        if self._driver is not None:
            await self._driver.stop(within_s)

    def kill(self) -> None:
        """Kills the driver; no other driver is started."""
        self._stopping.set()
        if self._driver is not None:
            self._driver.kill()
