"""One replay, from when control gives it to this member until it has ended here, or is another's.

Theory of operation
1. A replay is carried out by one driver at a time, which waits for its turn: `turns` bounds the drivers of a member.
   One that only puts away has no Spark, and waits for none.
2. A driver that ends without saying how the replay ended has died, and is started again with the same order. What it
   did is in the target's transactions, so the next one goes on there. One that died so many times in a row without
   having come further has failed, and so has the replay.
3. What shall become of it is a `Wish`, which may change at any time:
   GO_ON   the usual one
   CANCEL  the driver is told to stop, and reports CANCELLED. One that is killed, or dies over it, has left transactions
           open: another one is started that puts them away, and reports. So it is too where this process has started
           none: one of an earlier serve, or of another member, may have begun, and died before control heard of it.
   HOLD    the driver is told to stop, and the replay stays open: its report of CANCELLED is forwarded as progress.
           So it is when this member ends, or can't follow what control says.
   DROP    it is another's by now, or has ended. The driver is killed, and does not put away what it left open: it would
           do that by the very transactional ids with which the other one writes, and cut that off. Its own are cut off
           when the other one begins (fencing), so nothing of it can be committed any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum

import structlog

from mesh.rpc import replays
from services.pipeline.orders import Order
from services.pipeline.serving import metrics
from services.pipeline.serving.driver import Command, Driver, Ending
from services.pipeline.serving.hiding import secrets_in
from services.pipeline.serving.order_making import DRIVERS, ImpossibleOrderError, NotNowError
from services.pipeline.serving.reports import is_end, merged
from services.pipeline.serving.restarts import Restarts

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
SWEEPS = 2
"""How many drivers may die over putting a cancelled replay away."""
NOTHING_WRITTEN = "cancelled; nothing was written"
NOT_SWEPT = "what it has left open there ends with the transactions' time-out"

MakeOrder = Callable[[replays.Replay], Awaitable[Order]]
Tell = Callable[[replays.ReportReplayRequest], None]
MakeCommand = Callable[[Order], Command]

log = structlog.get_logger(__name__)


class Wish(Enum):
    """What shall become of a replay here; see the top of this file."""

    GO_ON = "running"
    CANCEL = "cancelling"
    HOLD = "held"
    DROP = "dropped"


def command_of(order: Order, secrets: frozenset[str] = frozenset(), niceness: int = 0) -> Command:
    """The driver of an order; `secrets` that it knows beside those of the order."""
    kind = kind_of(order.replay)
    arguments = ("run", kind, "--order", "-")
    hidden = secrets | secrets_in(order.clusters)
    return Command(kind, order.replay.name, arguments, order.to_line(), hidden, niceness=niceness)


def kind_of(replay: replays.Replay) -> str:
    """The job that carries it out."""
    return DRIVERS[replay.spec.WhichOneof("destination") or ""]


class Carrying:
    """One replay. `run` once; the rest may be called whenever."""

    def __init__(
        self,
        replay: replays.Replay,
        member: str,
        *,
        make_order: MakeOrder,
        tell: Tell,
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
        """How long the driver may take to stop, if it is told to."""
        self._restarts = Restarts(FIRST_PAUSE_S, LONGEST_PAUSE_S, steady_s=float("inf"))
        self._waits = Restarts(FIRST_PAUSE_S, LONGEST_PAUSE_S, steady_s=float("inf"))
        self._sweeps = 0
        self._writes = replay.spec.HasField("topic") and not replay.spec.dry_run
        self.has_ended = False

    @property
    def has_driver(self) -> bool:
        return self._driver is not None

    def wants(self, wish: Wish, within_s: float | None = None) -> None:
        """From now on. A driver that runs has `within_s` to stop, or as long as the settings say."""
        if self.wish in (wish, Wish.DROP) or (self.wish is Wish.CANCEL and wish is Wish.GO_ON):
            return
        self.wish = wish
        self._within_s = self._stop_s if within_s is None else within_s
        self._changed.set()
        if self._driver is not None:
            self._end_for(self._driver, wish)

    def _end_for(self, driver: Driver, wish: Wish) -> None:
        """Tells a driver what its replay's new wish means for it."""
        if wish is Wish.DROP:
            driver.kill()
        elif wish is not Wish.GO_ON and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.create_task(driver.stop(self._within_s), name=f"stop {self.replay.name}")

    async def run(self) -> None:
        """Until it has ended here, or is dropped. A replay that is held waits for what comes."""
        while not self.has_ended and self.wish is not Wish.DROP:
            if self.wish is Wish.HOLD:
                await self._until_changed()
            elif self.wish is Wish.CANCEL and not self._writes:
                self._end(replays.REPLAY_STATE_CANCELLED, NOTHING_WRITTEN)
            else:
                await self._try()

    async def _try(self) -> None:
        """One driver, from its turn to its end, and the pause after one that died."""
        wish, ending = self.wish, None
        if not await self._has_turn():
            return
        try:
            ending = await self._drive(wish)
        except ImpossibleOrderError as error:
            self._end(replays.REPLAY_STATE_FAILED, str(error))
        except (NotNowError, OSError) as error:  # the system is out of processes, or of handles
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
        """Whether it has come; False when something else shall become of the replay meanwhile."""
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
        """None when it was not started, because something else shall become of it by now."""
        self._stopping = None
        replay = replays.Replay()
        replay.CopyFrom(self.replay)
        replay.cancelling = wish is Wish.CANCEL
        order = await self._make_order(replay)
        if self.wish is not wish:
            return None
        driver = self._driver = await Driver.started(self._make_command(order))
        self._waits.in_a_row = 0
        if self.wish is not wish:  # nobody could tell it while it was being started
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
        """What the driver says of itself: forwarded as what it means for the replay."""
        if self.wish is Wish.DROP or self.has_ended:
            return
        if self._comes_further(report):
            self._restarts.in_a_row = 0
        partitions = merged(self.replay.partitions, report.partitions)
        del self.replay.partitions[:]
        self.replay.partitions.extend(partitions)
        report.name, report.member = self.replay.name, self._member
        is_told_to_stop = report.state == replays.REPLAY_STATE_CANCELLED and self.wish is not Wish.CANCEL
        if is_told_to_stop:  # by us for another reason, or by somebody else: the replay goes on later
            report.state = replays.REPLAY_STATE_RUNNING
            report.description = ""
        self.has_ended = is_end(report.state)
        self._tell(report)
        if self.has_ended and self._driver is not None:  # what hangs now would keep others from their turn
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
