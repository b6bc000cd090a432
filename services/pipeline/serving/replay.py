"""Carries out one replay, from the time that control assigns it until it has ended here or belongs to another member.

Theory of operation
1. One driver at a time carries out a replay. It waits for a free place: the semaphore `turns` bounds the drivers of a
   member. A driver that only ends the transactions of a cancelled replay has no Spark, and does not wait.
2. A driver that ends without a final state has died, and another driver is started with the same order. The target's
   transactions hold the progress, so the next driver resumes there. If drivers die several times in a row without
   progress, the replay has failed.
3. The `Wish` is the required state of the replay, and may change at any time:
   GO_ON   The usual wish.
   CANCEL  The driver gets SIGTERM, and reports CANCELLED. If the driver is killed or dies at that, its transactions
           stay open. Then another driver is started, which ends the transactions and reports. This is also done if this
           process has started no driver. A driver of an earlier `serve`, or of another member, may have begun, and may
           have died before control got a report.
   HOLD    The driver gets SIGTERM, and the replay stays open: its report of CANCELLED is forwarded as progress. This
           wish is set when this member stops, or can't follow control.
   DROP    The replay belongs to another member now, or has ended. The driver is killed, and does not end its open
           transactions. It would do so by the transactional ids with which the other member writes, and so abort the
           other member's transactions. When the other member begins, it fences this driver. So the open transactions of
           this driver can't be committed any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum

import structlog

from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import Order, Report
from services.pipeline.serving import metrics
from services.pipeline.serving.driver import Command, Driver, Ending
from services.pipeline.serving.orders import DRIVERS, ImpossibleOrderError, NotNowError
from services.pipeline.serving.redaction import secrets_in
from services.pipeline.serving.reports import is_end, merged
from services.pipeline.serving.restarts import Restarts

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
SWEEPS = 2
"""The number of drivers that may die while they end the transactions of a cancelled replay."""
NOTHING_WRITTEN = "cancelled; nothing was written"
NOT_SWEPT = "what it has left open there ends with the transactions' time-out"

MakeOrder = Callable[[replays.Replay], Awaitable[Order]]
MakeCommand = Callable[[Order], Command]

log = structlog.get_logger(__name__)


class Wish(Enum):
    """The required state of a replay here; see the top of this file."""

    GO_ON = "running"
    CANCEL = "cancelling"
    HOLD = "held"
    DROP = "dropped"


def command_of(order: Order, secrets: frozenset[str] = frozenset(), niceness: int = 0) -> Command:
    """The command of an order's driver; `secrets` are known to the driver beside the secrets of the order."""
    kind = kind_of(order.replay)
    arguments = ("run", kind, "--order", "-")
    hidden = secrets | secrets_in(order.clusters)
    return Command(kind, order.replay.name, arguments, order.to_line(), hidden, niceness=niceness)


def kind_of(replay: replays.Replay) -> str:
    """The job that carries out the replay."""
    return DRIVERS[replay.spec.WhichOneof("destination") or ""]


class Carrying:
    """One replay. Call `run` once; the other methods may be called at any time."""

    def __init__(
        self,
        replay: replays.Replay,
        member: str,
        *,
        make_order: MakeOrder,
        tell: Report,
        turns: asyncio.Semaphore,
        attempts: int,
        stop_s: float,
        make_command: MakeCommand = command_of,
    ) -> None:
        self.replay = replays.Replay()
        self.replay.CopyFrom(replay)
        self.wish = Wish.GO_ON
        self._member = member
        self._make_order = make_order
        self._make_command = make_command
        self._tell = tell
        self._turns = turns
        self._attempts = attempts
        self._stop_s = stop_s
        self._changed = asyncio.Event()
        self._driver: Driver | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._within_s = stop_s
        """Seconds that the driver has to stop after SIGTERM."""
        self._restarts = Restarts(FIRST_PAUSE_S, LONGEST_PAUSE_S, steady_s=float("inf"))
        self._waits = Restarts(FIRST_PAUSE_S, LONGEST_PAUSE_S, steady_s=float("inf"))
        self._sweeps = 0
        self._writes = replay.spec.HasField("topic") and not replay.spec.dry_run
        self.has_ended = False

    @property
    def has_driver(self) -> bool:
        return self._driver is not None

    def wants(self, wish: Wish, within_s: float | None = None) -> None:
        """Sets the wish. A running driver has `within_s` seconds to stop, or the seconds of the settings."""
        if self.wish in (wish, Wish.DROP) or (self.wish is Wish.CANCEL and wish is Wish.GO_ON):
            return
        self.wish = wish
        self._within_s = self._stop_s if within_s is None else within_s
        self._changed.set()
        if self._driver is not None:
            self._end_for(self._driver, wish)

    def _end_for(self, driver: Driver, wish: Wish) -> None:
        """Applies the new wish of a replay to its driver."""
        if wish is Wish.DROP:
            driver.kill()
        elif wish is not Wish.GO_ON and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.create_task(driver.stop(self._within_s), name=f"stop {self.replay.name}")

    async def run(self) -> None:
        """Runs until the replay has ended here, or is dropped. A held replay waits for its next wish."""
        while not self.has_ended and self.wish is not Wish.DROP:
            if self.wish is Wish.HOLD:
                await self._until_changed()
            elif self.wish is Wish.CANCEL and not self._writes:
                self._end(replays.REPLAY_STATE_CANCELLED, NOTHING_WRITTEN)
            else:
                await self._try()

    async def _try(self) -> None:
        """Runs one driver, from the wait for a free place to its end, and waits after a driver that died."""
        wish, ending = self.wish, None
        if not await self._has_turn():
            return
        try:
            ending = await self._drive(wish)
        except ImpossibleOrderError as error:
            self._end(replays.REPLAY_STATE_FAILED, str(error))
        except (NotNowError, OSError) as error:  # the system has too few processes or file handles
            log.warning("a replay waits for what its driver needs", replay=self.replay.name, reason=str(error))
        finally:
            if wish is not Wish.CANCEL:
                self._turns.release()
        if self.wish is not wish or self.has_ended or self._stopping is not None:
            return
        if ending is None:
            await self._until_changed(self._waits.failed())
            return
        pause_s = self._restarts.failed()
        if not self._gives_up(ending):
            await self._until_changed(pause_s)

    async def _has_turn(self) -> bool:
        """Waits for a free place for a driver; False if the wish changes meanwhile."""
        if self.wish is Wish.CANCEL:
            return True
        self._changed.clear()
        turn, change = asyncio.create_task(self._turns.acquire()), asyncio.create_task(self._changed.wait())
        is_wanted = False
        try:
            await asyncio.wait((turn, change), return_when=asyncio.FIRST_COMPLETED)
            is_wanted = not self._changed.is_set()
        finally:
            turn.cancel()
            change.cancel()
            await asyncio.wait((turn, change))
            if not is_wanted and not turn.cancelled():
                self._turns.release()
        return is_wanted

    async def _drive(self, wish: Wish) -> Ending | None:
        """Runs a driver; None if no driver was started because the wish has changed."""
        self._stopping = None
        replay = replays.Replay()
        replay.CopyFrom(self.replay)
        replay.cancelling = wish is Wish.CANCEL
        order = await self._make_order(replay)
        if self.wish is not wish:
            return None
        driver = self._driver = await Driver.started(self._make_command(order))
        self._waits.in_a_row = 0
        if self.wish is not wish:  # no signal could reach it during its start
            self._end_for(driver, self.wish)
        try:
            return await driver.run(self._reported)
        finally:
            self._driver = None

    def _gives_up(self, ending: Ending) -> bool:
        """Whether no other driver is started after this one."""
        if self.wish is Wish.CANCEL:
            self._sweeps += 1
            if self._sweeps < SWEEPS:
                return False
            text = f"its driver {ending}; {NOT_SWEPT}"
            self._end(replays.REPLAY_STATE_CANCELLED, text)
            return True
        metrics.driver_deaths.labels(kind_of(self.replay)).inc()
        log.warning("a driver died", replay=self.replay.name, how=str(ending), in_a_row=self._restarts.in_a_row)
        if self._restarts.in_a_row < self._attempts:
            return False
        text = f"its driver died {self._attempts} times in a row without having come further; the last one {ending}"
        self._end(replays.REPLAY_STATE_FAILED, text)
        return True

    def _reported(self, report: replays.ReportReplayRequest) -> None:
        """Forwards a driver's report, converted to its meaning for the replay."""
        if self.wish is Wish.DROP or self.has_ended:
            return
        if self._comes_further(report):
            self._restarts.in_a_row = 0
        partitions = merged(self.replay.partitions, report.partitions)
        del self.replay.partitions[:]
        self.replay.partitions.extend(partitions)
        report.name, report.member = self.replay.name, self._member
        is_told_to_stop = report.state == replays.REPLAY_STATE_CANCELLED and self.wish is not Wish.CANCEL
        if is_told_to_stop:  # for another reason than CANCEL: the replay goes on later
            report.state = replays.REPLAY_STATE_RUNNING
            report.description = ""
        self.has_ended = is_end(report.state)
        self._tell(report)
        if self.has_ended and self._driver is not None:  # a driver that hangs now would block others
            asyncio.get_running_loop().call_later(self._stop_s, self._driver.kill)

    def _comes_further(self, report: replays.ReportReplayRequest) -> bool:
        known = {(each.topic, each.partition): each.position for each in self.replay.partitions}
        return any(each.position > known.get((each.topic, each.partition), each.position) for each in report.partitions)

    def _end(self, state: replays.ReplayState.ValueType, text: str) -> None:
        self.has_ended = True
        self._tell(
            replays.ReportReplayRequest(name=self.replay.name, member=self._member, state=state, description=text)
        )

    async def _until_changed(self, within_s: float | None = None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()
