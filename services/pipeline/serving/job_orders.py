"""Follows operators' orders for the continuous jobs of this member, and reports the state of these jobs to control.

1. When a member begins to follow, control sends all open orders, and then each new order. So a killed `serve` loses no
   order: the next one gets the same orders.
2. An order has one outcome, which is sent until control has taken it. If control sends the order again meanwhile,
   nothing changes.
3. An order without an answer is dropped here after it has expired, because control gives it up by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import grpc
import structlog

from mesh.pauses import pause
from mesh.rpc import events, pipelines
from mesh.rpc.cancellation import heed_cancellation
from services.pipeline.driver_protocol.acceptances import Acceptance, Answer
from services.pipeline.driver_protocol.job_reports import JobReport
from services.pipeline.serving import metrics
from services.pipeline.serving.continuous import ContinuousDriver
from services.pipeline.serving.control import ControlLink

REPORT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
SAYING_SECONDS = 900.0
"""Seconds that control waits for the outcome of an expired order."""
MOST_APART = 100
"""The most topics of a job that a report to control names; the report gives only the number of the others."""
NEVER_HEARD = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""Errors for which another attempt to report an outcome is in vain."""
REFUSED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
"""Errors of a wrong certificate, which do not pass by themselves."""

log = structlog.get_logger(__name__)


class JobOrders:
    """The background task between control and continuous jobs."""

    def __init__(self, link: ControlLink, jobs: Sequence[ContinuousDriver]) -> None:
        self._link = link
        self._jobs = {job.name: job for job in jobs}
        self._given: dict[str, tuple[ContinuousDriver, float]] = {}
        """Orders that jobs have, with the Unix times at which they expire."""
        self._outcomes: dict[str, events.OrderOutcome] = {}
        """Outcomes that control has not taken yet."""
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Runs for ever."""
        async with asyncio.TaskGroup() as together:
            together.create_task(self._follow(), name="follow orders")
            together.create_task(self._tell_outcomes(), name="report orders")
            together.create_task(self._tell_jobs(), name="report jobs")

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for order in self._link.open_orders():
                    failures = 0
                    self.take(order)
            except grpc.aio.AioRpcError as error:
                tell = log.warning if error.code() in REFUSED else log.debug
                tell("orders cannot be followed now", reason=f"{error.code().name}: {error.details()}")
            heed_cancellation()
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    def take(self, order: events.SidecarOrder) -> None:
        """Takes an order of control, for the first time or repeated."""
        self._forget_expired()
        if order.name in self._outcomes:
            self._wake.set()
            return
        if order.name in self._given:
            return
        loss = order.command.accept_loss
        job = self._jobs.get(loss.job)
        if not order.command.HasField("accept_loss"):
            self._ended(order.name, False, f"a pipeline knows no order {order.command.WhichOneof('command')!r}")
        elif job is None:
            named = ", ".join(sorted(self._jobs)) or "none"
            self._ended(order.name, False, f"job {loss.job} does not run here (JOBS of this member: {named})")
        else:
            log.info("an operator accepts a loss", order=order.name, job=loss.job, topic=loss.topic)
            until = order.expire_time.ToDatetime(UTC).timestamp()
            self._given[order.name] = job, until
            job.accept(Acceptance(order.name, loss.topic, until), self._answered)

    def _answered(self, answer: Answer) -> None:
        self._given.pop(answer.order, None)
        self._ended(answer.order, answer.is_done, answer.text)

    def _ended(self, name: str, is_done: bool, text: str) -> None:
        result = events.ORDER_RESULT_DONE if is_done else events.ORDER_RESULT_FAILED
        outcome = self._outcomes[name] = events.OrderOutcome(result=result, description=text)
        outcome.time.FromDatetime(datetime.now(UTC))
        log.info("an order came to its end", order=name, is_done=is_done, text=text)
        self._wake.set()

    def _forget_expired(self) -> None:
        """Drops orders some minutes after they have expired, like control; until then a job may report the outcome."""
        now = datetime.now(UTC).timestamp()
        for name, (job, until) in list(self._given.items()):
            if now > until + SAYING_SECONDS:
                del self._given[name]
                job.forget(name)

    async def _tell_outcomes(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            for name, outcome in list(self._outcomes.items()):
                if await self._is_heard(name, outcome):
                    del self._outcomes[name]
            failures = failures + 1 if self._outcomes else 0
            if self._outcomes:
                self._wake.set()
                await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    async def _is_heard(self, name: str, outcome: events.OrderOutcome) -> bool:
        try:
            await self._link.report_order(name, outcome)
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            if error.code() in NEVER_HEARD:
                metrics.reports.labels("refused").inc()
                log.warning("control does not take an outcome", order=name, reason=error.details())
                return True
            metrics.reports.labels("failed").inc()
            return False
        metrics.reports.labels("ok").inc()
        return True

    async def _tell_jobs(self) -> None:
        """Reports the jobs every few seconds; if control does not take a report, the next one follows."""
        while self._jobs:
            try:
                await self._link.report_jobs([status_of(job) for job in self._jobs.values()])
            except grpc.aio.AioRpcError as error:
                heed_cancellation()
                log.debug("the pipeline cannot report its jobs to control now", reason=error.details())
            await asyncio.sleep(REPORT_SECONDS)


def status_of(job: ContinuousDriver) -> pipelines.JobStatus:
    """The state of a job, for operators."""
    status = pipelines.JobStatus(job=job.name, running=job.has_driver, problem=job.how_it_ended_last)
    reports = list(job.reports.values())
    if (behind := _sum(reports)) is not None:
        status.behind = behind
    if spare := [each.spare for each in reports if each.spare is not None]:
        status.retention_distance = min(spare)
    times = [each.complete_until for each in reports if each.complete_until is not None]
    if times and len(times) == len(reports):
        status.complete_until.FromMilliseconds(int(min(times) * 1000))
    apart = {topic: (text, topic in each.lost) for each in reports for topic, text in (each.apart or {}).items()}
    status.apart_count = len(apart)
    for topic, (text, is_lost) in sorted(apart.items())[:MOST_APART]:
        status.apart.add(topic=topic, problem=text, loss=is_lost)
    return status


def _sum(reports: Sequence[JobReport]) -> int | None:
    behind = [each.behind for each in reports]
    known = [each for each in behind if each is not None]
    return sum(known) if known and len(known) == len(behind) else None
