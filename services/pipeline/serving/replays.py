"""Follows the replays that control assigns to this member, and has each carried out.

1. When a member begins to follow, control sends all open replays with their progress, and then new and cancelled
   replays. So a killed `serve` loses nothing: the next one gets the same replays.
2. A member that can't follow for 15 s has to hold its replays (`FollowReplays`): control may assign them to another
   member after 20 s. So drivers get SIGTERM after `HOLD_SECONDS`, and are killed before the 15 s are over if they still
   run. A replay that control assigns again goes on. A replay that belongs to another member now is refused at its next
   report, and dropped.
3. A younger process of the same name starts the same drivers at this moment. Then this process drops all replays at
   once, and follows no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import structlog

from mesh.pauses import pause
from mesh.rpc import replays
from mesh.rpc.cancellation import heed_cancellation
from services.pipeline.serving import metrics
from services.pipeline.serving.control import ControlLink
from services.pipeline.serving.replay import Carrying, Wish
from services.pipeline.serving.reports import Reports, is_end

HOLD_SECONDS = 8.0
HOLD_STOP_SECONDS = 5.0
"""Seconds that drivers have to stop then."""
LOOK_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
ENDS_KEPT = 100
"""Replays whose end is remembered, in case that control has not got the end, or assigns the replay once more."""

Begin = Callable[[replays.Replay, Callable[[replays.ReportReplayRequest], None]], Carrying]
"""Starts to carry out a replay; the callable gets its reports."""

log = structlog.get_logger(__name__)


class ReplayFollower:
    """The background task between control and drivers."""

    def __init__(self, link: ControlLink, begin: Begin, *, superseded: Callable[[str], None]) -> None:
        """`superseded` gets the reason why this process has to give way."""
        self._link = link
        self._begin = begin
        self._superseded = superseded
        self._reports = Reports(link.report, self._drop)
        self._carried: dict[str, Carrying] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, replays.ReportReplayRequest] = {}
        self._followed_at = time.monotonic()
        self._is_held = False
        self._why_not = "no answer yet"

    async def run(self) -> None:
        """Runs for ever."""
        async with asyncio.TaskGroup() as together:
            together.create_task(self._follow(), name="follow replays")
            together.create_task(self._reports.run(), name="report replays")
            together.create_task(self._watch(), name="hold replays")

    async def drain(self, stop_s: float, tell_s: float) -> None:
        """Stops the drivers in order, and reports their progress to control; replays stay open.

        Call it after `run` has ended.
        """
        self._wish_all(Wish.HOLD, stop_s)
        while any(carrying.has_driver for carrying in self._carried.values()):
            await asyncio.sleep(0.05)
        await self._reports.flush(tell_s)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for replay in self._link.open_replays():
                    failures = 0
                    self._take(replay)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.ABORTED:
                    self._is_held = True  # for good
                    self._wish_all(Wish.DROP)
                    self._superseded(error.details() or "a younger process of this member follows its replays")
                    await asyncio.Event().wait()
                self._why_not = f"{error.code().name}: {error.details()}"
            heed_cancellation()
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    def _take(self, replay: replays.Replay) -> None:
        if (end := self._ends.get(replay.name)) is not None:
            self._reports.add(end)
            return
        carrying = self._carried.get(replay.name)
        if carrying is None:
            log.info("a replay is given", replay=replay.name, destination=replay.spec.WhichOneof("destination"))
            carrying = self._carried[replay.name] = self._begin(replay, self._said)
            task = self._tasks[replay.name] = asyncio.create_task(carrying.run(), name=replay.name)
            task.add_done_callback(lambda task: self._ended(replay.name, task))
        carrying.wants(Wish.CANCEL if replay.cancelling else Wish.GO_ON)
        self._count()

    def _said(self, report: replays.ReportReplayRequest) -> None:
        if is_end(report.state):
            self._ends[report.name] = report
            if len(self._ends) > ENDS_KEPT:
                del self._ends[next(iter(self._ends))]
        self._reports.add(report)
        self._count()

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._carried.pop(name, None)
        self._tasks.pop(name, None)
        self._count()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a replay failed by a fault of this member", replay=name, exc_info=error)
            text = f"the pipeline failed at it: {type(error).__name__}; its log says how"
            self._said(
                replays.ReportReplayRequest(
                    name=name, member=self._link.member, state=replays.REPLAY_STATE_FAILED, description=text
                )
            )

    def _drop(self, name: str) -> None:
        self._ends.pop(name, None)  # control has not taken it: the replay may be assigned again, and be done
        if (carrying := self._carried.get(name)) is not None:
            carrying.wants(Wish.DROP)

    async def _watch(self) -> None:
        """Holds all replays while control can't reach this member."""
        while True:
            now = time.monotonic()
            if self._link.is_following:
                if self._is_held:
                    log.info("control can be followed again")
                self._followed_at, self._is_held = now, False
            elif now - self._followed_at > HOLD_SECONDS and not self._is_held:
                self._is_held = True
                self._hold()
            await asyncio.sleep(LOOK_SECONDS)

    def _hold(self) -> None:
        log.warning("control can't be followed", replays_held=len(self._carried), reason=self._why_not)
        self._wish_all(Wish.HOLD, HOLD_STOP_SECONDS)
        for name in self._carried:  # control refuses the report if the replay belongs to another member by then
            self._reports.add(
                replays.ReportReplayRequest(name=name, member=self._link.member, state=replays.REPLAY_STATE_RUNNING)
            )
        self._count()

    def _wish_all(self, wish: Wish, within_s: float | None = None) -> None:
        for carrying in self._carried.values():
            carrying.wants(wish, within_s)

    def _count(self) -> None:
        counts = dict.fromkeys(Wish, 0)
        for carrying in self._carried.values():
            counts[carrying.wish] += 1
        for wish, count in counts.items():
            metrics.replays.labels(wish.value).set(count)
