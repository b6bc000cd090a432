"""The rollout of a rule change that moves topics: all gateways hold, then all switch; else control aborts it.

An aborted rollout names the members that caused the abort. A rollout does not begin while a gateway is away that may
still serve clients (`members.py` says which). So no gateway holds for a change that can't succeed. The operator may go
on without a gateway, by its name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import structlog
from prometheus_client import Counter

from mesh.exposition.histograms import Histogram
from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import events
from services.control.decisions.members.members import Members
from services.control.domain.errors import Conflict, InvalidField, NotAllowed, Unfollowed
from services.control.domain.members.canaries import canary_of
from services.control.domain.members.rollouts import (
    Verdict,
    answered,
    behind,
    holds,
    is_for_some,
    laggards,
    runs,
    verdict,
)
from services.control.domain.view import RULES_STREAM, MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

APPLY_TIMEOUT = 3.0
"""Seconds that a call waits for members to run the decision; the decision stands without them."""
SETTLE_TIME = 5.0
"""Seconds after the start for routers to connect again with their gateways.

Until a router does, no change that must be held begins.
"""
COMEBACK_TIME = 8.0
"""Seconds that a change waits for gateways that are away; no gateway holds meanwhile.

A living gateway looks for a router at least every 5 seconds, and its router for control.
"""
SWITCH_MARGIN_MS = 3000
"""Requests wait this much longer than control waits for HELD, so that clients do not see the usual move.

No record depends on this margin: a gateway that has answered HELD writes the moving topics nowhere until it knows how
the move ended.
"""

log = structlog.get_logger(__name__)
rollouts_total = Counter("kafka_mesh_control_rollouts_total", "Rollouts of rule changes that move topics.", ["outcome"])
switch_seconds = Histogram(
    "kafka_mesh_control_switch_seconds",
    "From the decision until every connected gateway ran it.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


class RolloutAbandoned(Exception):  # noqa: N818  (an outcome)
    """Control aborted the change; `late` holds the members that caused this, each with what it did instead."""

    def __init__(self, revision: int, late: dict[str, str], cause: str) -> None:
        super().__init__(cause)
        self.revision = revision
        self.late = late
        self.cause = cause


class CutMissedError(RuntimeError):
    """The cut of a move can't be made within its budget; the message says why."""


class Cut(Protocol):
    """The step between the hold of all gateways and their switch."""

    budget_s: float
    """Seconds from the beginning of the hold. A rollout whose cut takes longer is aborted."""

    @property
    def lacks(self) -> str:
        """The condition that `reach` still waits for; empty if it is not known."""
        ...

    async def reach(self) -> None:
        """Returns when the gateways may switch. Raises CutMissedError."""


class Rollouts:
    """Runs one rollout at a time; callers hold the turn of routing writes."""

    def __init__(self, journal: Journal, members: Members, hold_ms: int) -> None:
        self._journal = journal
        self._members = members
        self.hold_ms = hold_ms
        self._started = time.monotonic()

    async def settle(self) -> events.Event | None:
        """Aborts a rollout that a control has left because it stopped, or lost its database.

        Gateways that have answered HELD wait for the end of the rollout: until then, they write the moving topics
        nowhere.
        """
        pending = self._journal.view.rollout
        if pending is None or pending.rule_set_changed.HasField("canary"):  # `canaries.py` watches a canary
            return None
        cause = "control stopped or lost its database before the rollout was decided"
        payload = events.RolloutAborted(revision=pending.position, cause=cause)
        caller = Caller(CONTROL, cause, request_id=pending.request_id)
        await self.close(payload, caller)
        rollouts_total.labels("settled").inc()
        log.warning("control gave up a rollout that an earlier run had left pending", revision=pending.position)
        return pending

    async def _wait_for_routers(self) -> None:
        """Waits just after the start: routers connect again then, and the rollout must not skip their gateways."""
        deadline = self._started + SETTLE_TIME
        while not self._members.ever_reported and (left := deadline - time.monotonic()) > 0:
            await self._members.changed_within(left)

    def check_known(self, without: Collection[str]) -> None:
        """Refuses to go on without unknown members: a mistyped name would count as a decision."""
        known = self._members.known()
        for name in without:
            if name not in known:
                names = ", ".join(sorted(known)) or "none"
                raise InvalidField(
                    "options.without_members", f"control knows no gateway {name!r} (it knows {names}); see the status"
                )

    def check_understood(self, change: events.RuleSetChanged) -> None:
        """Refuses a change that a router of an older release would read wrongly: for all clients instead of some."""
        if not is_for_some(change):
            return
        for name, version in sorted(self._members.routers_below(TABLE_FORMAT).items()):
            raise NotAllowed(
                "ROUTER_TOO_OLD",
                f"members/{name}",
                f"router {name!r} is of release {version or 'unknown'}, which passes over whom a rule is about: its "
                "gateways would apply to every client what is meant for some. Upgrade it, or stop it, then retry",
            )

    def canary_of(self, wanted: events.Canary) -> events.Canary:
        """The canary with its defaults; refused if it names unknown gateways."""
        return canary_of(wanted, self._members.known())

    def obstacles(self, without: Collection[str]) -> list[str]:
        """For a dry run: members that would prevent a change that moves topics from beginning now."""
        return [
            f"gateway {name!r} has not been heard of for {seconds:.0f} s: while it is away the change does not begin, "
            "unless it goes on without it by name"
            for name, seconds in sorted(self._awaited(without).items())
        ]

    async def wait_for_members(self, without: Collection[str], cut: Cut | None = None) -> list[str]:
        """Waits before a change that moves topics: no gateway may be away that may still serve clients.

        The result names the gateways that operators leave out, now or since an earlier change.
        """
        deadline = time.monotonic() + COMEBACK_TIME
        await self._wait_for_routers()
        while awaited := self._awaited(without, cut):
            if not await self._members.changed_within(deadline - time.monotonic()):
                rollouts_total.labels("not begun").inc()
                raise _away(awaited)
        return sorted({*without, *self._members.away()})

    def left_behind(self, revision: int, passed_over: Collection[str]) -> list[str]:
        """Warnings for an operator about gateways that do not run `revision`.

        The change was made without such a gateway, or the gateway went away since, or it has not answered after HELD.
        """
        answers = self._members.gateways()
        stuck = {name for name, answer in answers.items() if holds(answer, revision)} - {*passed_over}
        behind = ({*passed_over, *self._members.away()} - stuck) & self._members.known()
        return [
            f"gateway {name!r} has held revision {revision} and does not say that it runs it: until it does, it "
            "refuses records for the topics that move; see the status"
            for name in sorted(stuck)
        ] + [
            f"gateway {name!r} was left behind at revision {self._members.revision_of(name) or 0}: if it serves "
            "clients, it leaves topics where they were until it hears a router; see the status"
            for name in sorted(behind)
            if not (name in answers and runs(answers[name], revision))
        ]

    async def followed(self, revision: int, without: Collection[str], seconds: float) -> None:
        """Returns when all known gateways run `revision`; Unfollowed names the gateways that do not in time."""
        deadline = time.monotonic() + seconds
        while missing := behind(revision, self._members.gateways(), self._awaited(without), without):
            if not await self._members.changed_within(deadline - time.monotonic()):
                raise Unfollowed(revision, missing)

    async def run(
        self, change: events.Event, caller: Caller, without: Collection[str] = (), cut: Cut | None = None
    ) -> float:
        """Completes the rollout of an appended RuleSetChanged.

        Returns the milliseconds until all gateways had switched; raises RolloutAbandoned if control aborts the rollout.
        """
        started = time.monotonic()
        revision = change.position
        expected = frozenset({*self._members.gateways(), *self._awaited(without, cut)})
        longest = self.hold_ms / 1000 if cut is None else min(self.hold_ms / 1000, cut.budget_s)
        decision = await self._held(revision, expected, without, started + longest)
        held = time.monotonic()
        late: dict[str, str] = {}
        cause = "not all members held in time"
        if decision is not Verdict.SWITCH:
            expected &= self._members.known()
            late = laggards(revision, expected, self._members.gateways(), without)
            cause = "; ".join(f"{name} {what}" for name, what in late.items()) or cause
        elif cut is not None:
            decision, cause = await _reached(cut, started + longest - time.monotonic())
        if decision is not Verdict.SWITCH:
            payload = events.RolloutAborted(revision=revision, members=sorted(late), cause=cause)
            await self.close(payload, caller)
            rollouts_total.labels("aborted").inc()
            raise RolloutAbandoned(revision, late, cause)
        reached = time.monotonic()
        await self.close(events.RolloutSwitched(revision=revision), caller)
        stored = time.monotonic()
        rollouts_total.labels("switched").inc()
        self._members.pass_over(without)
        if not await self.applied(revision, without):
            log.warning("not every gateway runs the switched table yet", revision=revision)
        ended = time.monotonic()
        log.info(
            "gateways have switched",
            revision=revision,
            held_ms=round(1000 * (held - started)),
            cut_ms=round(1000 * (reached - held)),
            stored_ms=round(1000 * (stored - reached)),
            applied_ms=round(1000 * (ended - stored)),
        )
        switch_seconds.observe(ended - started)
        return (ended - started) * 1000

    async def applied(self, revision: int, without: Collection[str] = ()) -> bool:
        """Waits, bounded, until connected gateways run `revision` or a later one, or have refused it."""
        deadline = time.monotonic() + APPLY_TIMEOUT
        while not all(
            name in without or answered(answer, revision) for name, answer in self._members.gateways().items()
        ):
            if not await self._members.changed_within(deadline - time.monotonic()):
                return False
        return True

    def not_applied(self, revision: int) -> list[str]:
        """Warnings for an operator about connected gateways that do not run a change without a move."""
        late = behind(revision, self._members.gateways(), {})
        return [f"gateway {name!r} {what}, and not {revision}; see the status" for name, what in late.items()]

    def _awaited(self, without: Collection[str], cut: Cut | None = None) -> dict[str, float]:
        """Gateways that are away, and that no operator has left out: gateway -> seconds of silence.

        An earlier change does not count for a cut: a gateway that still serves clients would write records to the old
        log that the copy does not have.
        """
        found = self._members.awaited() if cut is None else self._members.away()
        return {name: seconds for name, seconds in found.items() if name not in without}

    async def _held(
        self, revision: int, expected: frozenset[str], without: Collection[str], deadline: float
    ) -> Verdict:
        while True:
            still_there = expected & self._members.known()  # a gateway that said goodbye serves no client
            decision = verdict(revision, still_there, self._members.gateways(), without)
            if decision is not Verdict.WAIT:
                return decision
            if not await self._members.changed_within(deadline - time.monotonic()):
                return Verdict.ABORT

    async def close(
        self,
        payload: events.RolloutSwitched | events.RolloutAborted,
        caller: Caller,
        answer: Callable[[int], StoredAnswer | None] = lambda _: None,
    ) -> int:
        """Appends the end of a rollout, and returns its position.

        If the answer of the database is lost, it reads the log, and appends again only if the first try did not count.
        """
        rests_on: Callable[[MeshView], object] = lambda view: view.rollout and view.rollout.position  # noqa: E731
        draft = Draft(RULES_STREAM, payload)
        for_caller: Callable[[Sequence[events.Event], MeshView], StoredAnswer | None] = lambda new, _: answer(  # noqa: E731
            new[0].position
        )
        try:
            [new] = await self._journal.append(
                [draft], caller, self._journal.view, rests_on=rests_on, answer=for_caller
            )
        except StoreUnavailableError:
            await self._journal.catch_up()
            if self._journal.view.rollout is None:
                return self._journal.view.position
            [new] = await self._journal.append(
                [draft], caller, self._journal.view, rests_on=rests_on, answer=for_caller
            )
        return new.position


async def _reached(cut: Cut, seconds: float) -> tuple[Verdict, str]:
    """Whether the cut was made in time; if not, why."""
    try:
        async with asyncio.timeout(seconds):
            await cut.reach()
    except CutMissedError as error:
        return Verdict.ABORT, str(error)
    except TimeoutError:
        return Verdict.ABORT, ": ".join(
            filter(None, [f"the cut took longer than its budget of {cut.budget_s:g} s", cut.lacks])
        )
    return Verdict.SWITCH, ""


def as_conflict(abandoned: RolloutAbandoned) -> Conflict:
    """ABORTED, with the members' names."""
    names = ", ".join(sorted(abandoned.late)) or "none"
    return Conflict(
        "ROLLOUT_ABORTED",
        f"the change (revision {abandoned.revision}) was given up, the rules are as before: {abandoned.cause}. "
        "See to these members, or stop them, then retry; to go on without them set without_members",
        {"members": names, "revision": str(abandoned.revision)},
    )


def _away(awaited: Mapping[str, float]) -> Conflict:
    """ABORTED before any gateway held, with the members' names."""
    said = ", ".join(f"{name} has not been heard of for {seconds:.0f} s" for name, seconds in sorted(awaited.items()))
    return Conflict(
        "ROLLOUT_ABORTED",
        f"topics would move, and not all gateways answer: {said}, and may still serve clients under the rules as they "
        "are. Nothing was changed. See to these members, or stop them, then retry; to go on without them set "
        "without_members",
        {"members": ", ".join(sorted(awaited))},
    )
