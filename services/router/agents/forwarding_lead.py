"""Runs record rules: the log has the rules, the group assigns some of them to this router, a worker carries them out.

As long as the mesh has no record rule, the router has no group member, no topic and no process for them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import structlog

from mesh.rpc import record_rules
from services.router import metrics
from services.router.agents.assignments import Assignments
from services.router.agents.mesh_progress import MeshProgress, Word, words_of
from services.router.agents.ownership import Ownership, Share
from services.router.agents.progress import ProgressBoard
from services.router.agents.progress_application import ProgressApplication
from services.router.agents.rule_book import RuleBook
from services.router.agents.worker import LONGEST_SILENCE, Worker
from services.router.change import Change
from services.router.forwarding.orders import Progress, Report, RuleEnded, Spans
from services.router.settings import RouterSettings

LOOK_INTERVAL = 1.0
"""Seconds between two checks of the rules' progress. Each check sends at most one report to control."""
GIVE_UP_WITHIN = 5.0
"""Seconds that rules may take to end their last transaction before a partition is given up; then they are ended."""
GIVE_UP_AT_STOP_WITHIN = 1.5
"""The same when the router stops."""
LEAVE_WITHIN = 2.5
"""Seconds that a router which stops takes to leave the group; a stop promises 5 in all, the worker's end included."""
WORKER = (sys.executable, "-m", "services.router.forwarding")

log = structlog.get_logger(__name__)


class ForwardingLead:
    """`run` until cancelled; `progress` says how far this router's rules are."""

    def __init__(self, settings: RouterSettings, book: RuleBook, told: Change, command: Sequence[str] = WORKER) -> None:
        """`told`: noted when control has something new to hear."""
        self._settings = settings
        self._book = book
        self._told = told
        self._assignments = Assignments()
        self._name = settings.member_name.removeprefix("members/")
        self.mesh_progress = MeshProgress(self._name, lambda: book.latest.rules, time.monotonic)
        self._board = ProgressBoard(time.monotonic, self.mesh_progress.of)
        self._worker = Worker(
            (*command, *settings.worker_arguments), self._worker_began, self._heard, self._worker_ended
        )
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_stopping = False
        book.on_change(self._wake.set)

    def progress(self) -> list[record_rules.RecordRuleProgress]:
        """The known progress of the rules that are to run here."""
        return self._board.shown(self._assignments.running)

    async def run(self) -> None:
        """Waits for the first rule, then runs this router's rules."""
        while not self._book.latest.rules:
            await self._woken()
        loop = asyncio.get_running_loop()
        settings = self._settings
        ownership = Ownership(
            ",".join(settings.home_bootstrap_servers),
            settings.home_properties,
            settings.record_rules_group,
            self._name,
            take=partial(self._take_in_thread, loop),
            give_up=partial(self._give_up_in_thread, loop),
        )
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(ownership.run,), name="record rules", daemon=True
        )
        work = asyncio.create_task(self._worker.run(), name="worker of record rules")
        telling = asyncio.create_task(ProgressApplication(settings, self.mesh_progress, self._words).run())
        thread.start()
        try:
            while True:
                self._follow()
                while not await self._woken():
                    self._look()
                    for task in (work, telling):
                        if task.done():
                            task.result()
        finally:
            self._is_stopping = True
            telling.cancel()
            ownership.leave()
            await _joined(thread, LEAVE_WITHIN)
            work.cancel()
            await asyncio.wait([work, telling])

    def _words(self) -> Iterator[Word]:
        return words_of(self._name, self._board.spoken(self._assignments.running))

    def _follow(self) -> None:
        """The log or the group has changed: sends the resulting orders to the worker."""
        self._assignments.follow(self._book.latest)
        if self._worker.is_there:
            self._worker.send(self._assignments.orders())
        self._look()

    async def _woken(self) -> bool:
        """True at the next change; False when there was none for LOOK_INTERVAL."""
        try:
            async with asyncio.timeout(LOOK_INTERVAL):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    def _look(self) -> None:
        if self._assignments.busy and self._worker.is_there and self._worker.silence > LONGEST_SILENCE:
            self._worker.kill(f"it said nothing for {LONGEST_SILENCE:g} s")
        self.mesh_progress.measure()
        if self._board.look(self._assignments.running):
            self._told.note()

    def _own(self, share: Share) -> None:
        log.info("share in the record rules", partitions=len(share.owned), of=share.partitions)
        self._assignments.own(share.owned, share.partitions, share.mesh_id)
        self._wake.set()

    def _take_in_thread(self, loop: asyncio.AbstractEventLoop, share: Share) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and this thread is about to
            loop.call_soon_threadsafe(self._own, share)

    def _give_up_in_thread(self, loop: asyncio.AbstractEventLoop, share: Share) -> None:
        """Returns when the rules that are not in the share any more have ended here, or were ended."""
        try:
            asyncio.run_coroutine_threadsafe(self._give_up(share), loop).result(GIVE_UP_WITHIN + 1)
        except (concurrent.futures.TimeoutError, RuntimeError) as error:
            log.error("record rules were not ended in order", reason=str(error) or "the event loop is busy")

    async def _give_up(self, share: Share) -> None:
        self._own(share)
        self._follow()
        try:
            async with asyncio.timeout(GIVE_UP_AT_STOP_WITHIN if self._is_stopping else GIVE_UP_WITHIN):
                while self._worker.is_there and self._assignments.ending:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            rules = ", ".join(sorted(self._assignments.ending))
            self._worker.kill(f"it does not end {rules}, which other routers are about to run")

    def _worker_began(self) -> None:
        self._assignments.begin_anew()
        self._worker.send(self._assignments.orders())

    def _worker_ended(self, problem: str) -> None:
        self._assignments.begin_anew()
        self._board.stumbled(problem)
        self._ended.set()

    def _heard(self, report: Report) -> None:
        match report:
            case Progress():
                self._board.heard(report)
            case RuleEnded():
                self._assignments.ended(report.rule_id)
                self._ended.set()
            case Spans():
                for outcome, spans in report.counts.items():
                    metrics.tracing.count(outcome, spans)


async def _joined(thread: threading.Thread, seconds: float) -> None:
    """Waits for the end of a thread while the loop keeps running: the loop carries out the thread's last calls."""
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
