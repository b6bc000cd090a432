"""What control has to hear of replays: the newest of each, told as soon as control takes it.

Partitions that changed meanwhile come together, so a control that is away costs a replay's partitions and no more; and
control gives a member few replays at a time. An end is told at once, all else once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable

import grpc
import structlog

from mesh.pauses import pause
from mesh.rpc import replays
from mesh.rpc.cancellation import heed_cancellation
from services.pipeline.serving import metrics

REPORT_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
NEVER_HEARD = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)
"""It is another member's by now, or has ended."""

log = structlog.get_logger(__name__)


def is_end(state: replays.ReplayState.ValueType) -> bool:
    return state in (replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_FAILED, replays.REPLAY_STATE_CANCELLED)


def merged(
    older: Iterable[replays.ReplayPartition], newer: Iterable[replays.ReplayPartition]
) -> list[replays.ReplayPartition]:
    """The newer word about each partition."""
    return list({(each.topic, each.partition): each for part in (older, newer) for each in part}.values())


class Reports:
    """What is to be told. `tell` says one report to control; `dropped` hears of replays that are not ours any more."""

    def __init__(
        self,
        tell: Callable[[replays.ReportReplayRequest], Awaitable[None]],
        dropped: Callable[[str], None],
    ) -> None:
        self._tell = tell
        self._dropped = dropped
        self._untold: dict[str, replays.ReportReplayRequest] = {}
        self._wake = asyncio.Event()

    def add(self, report: replays.ReportReplayRequest) -> None:
        """One end stays the end: what comes after it is not told."""
        before = self._untold.get(report.name)
        if before is None:
            self._untold[report.name] = report
        elif not is_end(before.state):
            self._untold[report.name] = _together(before, report)
        metrics.reports_waiting.set(len(self._untold))
        if is_end(report.state):
            self._wake.set()

    async def run(self) -> None:
        """For ever."""
        failures = 0
        while True:
            wait = REPORT_SECONDS if not failures else pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            self._wake.clear()
            failures = 0 if await self._tell_all() else failures + 1
            if failures:
                await asyncio.sleep(FIRST_PAUSE_SECONDS)  # an end that can't be told wakes at once

    async def flush(self, within_s: float) -> None:
        """Tells what there is, for as long as that may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not await self._tell_all():
                    await asyncio.sleep(FIRST_PAUSE_SECONDS)

    async def _tell_all(self) -> bool:
        """Whether control has heard all, or does not want to."""
        for name, report in list(self._untold.items()):
            is_heard = await self._is_heard(report)
            if is_heard and self._untold.get(name) is report:  # a newer one has all that this one has
                del self._untold[name]
        metrics.reports_waiting.set(len(self._untold))
        return not self._untold

    async def _is_heard(self, report: replays.ReportReplayRequest) -> bool:
        try:
            await self._tell(report)
        except grpc.aio.AioRpcError as error:
            heed_cancellation()
            if error.code() in NEVER_HEARD:
                metrics.reports.labels("refused").inc()
                log.info("a replay is another's, or has ended", replay=report.name, reason=error.details())
                self._dropped(report.name)
                return True
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                return self._refused(report, error.details() or "")
            metrics.reports.labels("failed").inc()
            log.debug("a replay's progress cannot be told", replay=report.name, reason=error.details())
            return False
        metrics.reports.labels("ok").inc()
        return True

    def _refused(self, report: replays.ReportReplayRequest, why: str) -> bool:
        """What control can't read will not be better the next time. That a replay ended is told without the rest."""
        metrics.reports.labels("refused").inc()
        log.error("control refuses a report", replay=report.name, reason=why)
        if is_end(report.state) and (report.partitions or report.profiles):
            bare = replays.ReportReplayRequest(name=report.name, member=report.member, state=report.state)
            bare.description = f"{report.description}; control takes no more of the report: {why}"
            self._untold[report.name] = bare
        return True


def _together(older: replays.ReportReplayRequest, newer: replays.ReportReplayRequest) -> replays.ReportReplayRequest:
    both = replays.ReportReplayRequest()
    both.CopyFrom(newer)
    del both.partitions[:]
    both.partitions.extend(merged(older.partitions, newer.partitions))
    return both
