"""A rule change that moves topics, seen through: hold everywhere, then switch everywhere, or give up and say because
of whom.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter, Histogram

from mesh.rpc import events
from services.control.decisions.members import Members
from services.control.domain.errors import Conflict
from services.control.domain.rollouts import Verdict, answered, laggards, verdict
from services.control.domain.view import RULES_STREAM, MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import Caller, Draft, Journal

APPLY_TIMEOUT = 3.0
"""Seconds that a call waits for members to run what was decided; the decision stands without them."""
SETTLE_TIME = 5.0
"""Seconds after the start in which routers come back with their gateways; until one does, no change that must be
held begins.
"""
SWITCH_MARGIN_MS = 3000
"""Members may hold this much longer than control waits for them, so that a switch that was decided in the last moment
finds them still holding: a member that has let go would write to the old cluster until the switch reaches it.
"""
CONTROL = "control"
"""Actor of what control decides by itself."""

log = structlog.get_logger(__name__)
rollouts_total = Counter("control_rollouts_total", "Rollouts of rule changes that move topics.", ["outcome"])
switch_seconds = Histogram(
    "control_switch_seconds",
    "From the decision until every connected gateway ran it.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


class RolloutAbandoned(Exception):  # noqa: N818  (an outcome)
    """The change was given up; `late` are the members because of whom, each with what it did instead."""

    def __init__(self, revision: int, late: dict[str, str], cause: str) -> None:
        super().__init__(cause)
        self.revision = revision
        self.late = late
        self.cause = cause


class Rollouts:
    """One rollout at a time; callers hold the turn of routing writes."""

    def __init__(self, journal: Journal, members: Members, hold_ms: int) -> None:
        self._journal = journal
        self._members = members
        self.hold_ms = hold_ms
        self._started = time.monotonic()

    async def settle(self) -> events.Event | None:
        """Gives up a rollout that nobody sees through: left by a control that stopped, or that lost its database.

        Its gateways have released by themselves after hold_ms, under the table before; so that table stays.
        """
        pending = self._journal.view.rollout
        if pending is None:
            return None
        cause = "control stopped or lost its database before the rollout was decided"
        payload = events.RolloutAborted(revision=pending.position, cause=cause)
        caller = Caller(CONTROL, cause, request_id=pending.request_id)
        await self._append(payload, caller)
        rollouts_total.labels("settled").inc()
        log.warning("gave up a rollout that was left pending", revision=pending.position)
        return pending

    async def wait_for_routers(self) -> None:
        """Just after the start: routers are on their way back, and their gateways must not be passed over."""
        deadline = self._started + SETTLE_TIME
        while not self._members.ever_reported and (left := deadline - time.monotonic()) > 0:
            await _changed_within(self._members, left)

    async def run(self, change: events.Event, caller: Caller) -> float:
        """Sees an appended RuleSetChanged through. Milliseconds until all had switched; RolloutAbandoned when they
        did not.
        """
        started = time.monotonic()
        revision = change.position
        expected = frozenset(self._members.gateways())
        decision = await self._held(revision, expected, started + self.hold_ms / 1000)
        if decision is not Verdict.SWITCH:
            late = laggards(revision, expected, self._members.gateways())
            cause = "; ".join(f"{name} {what}" for name, what in late.items()) or "not all members held in time"
            payload = events.RolloutAborted(revision=revision, members=sorted(late), cause=cause)
            await self._append(payload, caller)
            rollouts_total.labels("aborted").inc()
            raise RolloutAbandoned(revision, late, cause)
        await self._append(events.RolloutSwitched(revision=revision), caller)
        rollouts_total.labels("switched").inc()
        await self.applied(revision)
        elapsed = time.monotonic() - started
        switch_seconds.observe(elapsed)
        return elapsed * 1000

    async def applied(self, revision: int) -> bool:
        """Waits, bounded, until connected gateways run `revision` or a later one, or have refused it."""
        deadline = time.monotonic() + APPLY_TIMEOUT
        while not all(answered(answer, revision) for answer in self._members.gateways().values()):
            if not await _changed_within(self._members, deadline - time.monotonic()):
                return False
        return True

    async def _held(self, revision: int, expected: frozenset[str], deadline: float) -> Verdict:
        while True:
            decision = verdict(revision, expected, self._members.gateways())
            if decision is not Verdict.WAIT:
                return decision
            if not await _changed_within(self._members, deadline - time.monotonic()):
                return Verdict.ABORT

    async def _append(self, payload: events.RolloutSwitched | events.RolloutAborted, caller: Caller) -> None:
        """Once more where the answer of the database was lost: the log says whether the first try counted."""
        rests_on: Callable[[MeshView], object] = lambda view: view.rollout and view.rollout.position  # noqa: E731
        draft = Draft(RULES_STREAM, payload)
        try:
            await self._journal.append([draft], caller, rests_on=rests_on)
        except StoreUnavailableError:
            await self._journal.catch_up()
            if self._journal.view.rollout is None:
                return
            await self._journal.append([draft], caller, rests_on=rests_on)


async def _changed_within(members: Members, seconds: float) -> bool:
    if seconds <= 0:
        return False
    try:
        async with asyncio.timeout(seconds):
            await members.changed()
    except TimeoutError:
        return False
    return True


def as_conflict(abandoned: RolloutAbandoned) -> Conflict:
    """ABORTED, with the members' names."""
    names = ", ".join(sorted(abandoned.late)) or "none"
    return Conflict(
        "ROLLOUT_ABORTED",
        f"the change (revision {abandoned.revision}) was given up, the rules are as before: {abandoned.cause}. "
        "See to these members, or stop them, then retry",
        {"members": names, "revision": str(abandoned.revision)},
    )
