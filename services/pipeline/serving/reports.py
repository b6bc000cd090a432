"""Reports on replays for control: the newest report of each replay, sent as soon as control takes it.

Reports that wait are merged by partition. So an absent control costs the memory of one report for each replay, and
control assigns few replays to a member at once. A final state is sent at once, all other reports once a second.
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
"""The replay belongs to another member now, or has ended."""

log = structlog.get_logger(__name__)


def is_end(state: replays.ReplayState.ValueType) -> bool:
    return state in (replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_FAILED, replays.REPLAY_STATE_CANCELLED)


def merged(
    older: Iterable[replays.ReplayPartition], newer: Iterable[replays.ReplayPartition]
) -> list[replays.ReplayPartition]:
    """The newer state of each partition."""
    return list({(each.topic, each.partition): each for part in (older, newer) for each in part}.values())


class Reports:
    """The waiting reports. `tell` sends one report to control; `dropped` gets the replays that now belong to others."""

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
        """Adds a report; reports after a final state are not sent."""
        before = self._untold.get(report.name)
        if before is None:
            self._untold[report.name] = report
        elif not is_end(before.state):
            self._untold[report.name] = _together(before, report)
        metrics.reports_waiting.set(len(self._untold))
        if is_end(report.state):
            self._wake.set()

    async def run(self) -> None:
        """Runs for ever."""
        failures = 0
        while True:
            wait = REPORT_SECONDS if not failures else pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            self._wake.clear()
            failures = 0 if await self._tell_all() else failures + 1
            if failures:
                await asyncio.sleep(FIRST_PAUSE_SECONDS)  # a final state that can't be sent wakes this loop at once

    async def flush(self, within_s: float) -> None:
        """Sends the waiting reports, at most for `within_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not await self._tell_all():
                    await asyncio.sleep(FIRST_PAUSE_SECONDS)

    async def _tell_all(self) -> bool:
        """Whether control has taken or refused all reports."""
        for name, report in list(self._untold.items()):
            is_heard = await self._is_heard(report)
            if is_heard and self._untold.get(name) is report:  # a newer report includes this one
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
            log.debug("a replay's progress can't be sent to control", replay=report.name, reason=error.details())
            return False
        metrics.reports.labels("ok").inc()
        return True

    def _refused(self, report: replays.ReportReplayRequest, why: str) -> bool:
        """Drops a report that control can't read, because another attempt would fail too.

        A final state is then sent without the rest of the report.
        """
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
