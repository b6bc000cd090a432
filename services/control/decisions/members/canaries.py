"""Changes that some clients try first: control watches a canary while it runs, then promotes or aborts it.

Only the log holds the facts of a canary: its event names its duration and its gateways. So if another control takes
the lead meanwhile, that control goes on watching. While a canary runs, control refuses other changes of the rules. They
wait for its end, or for an operator who ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC

import structlog
from prometheus_client import Counter

from mesh import durations
from mesh.rpc import events
from services.control.decisions.members.members import Members
from services.control.decisions.members.rollouts import APPLY_TIMEOUT, SETTLE_TIME, Rollouts
from services.control.decisions.turns import Turns
from services.control.domain.errors import Conflict, NotAllowed, Refusal
from services.control.domain.members.canaries import Outcome, chosen_for, judged
from services.control.domain.members.rollouts import Phase
from services.control.domain.view import MeshView
from services.control.steady_clock import Clock
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

LOOK_EVERY = 0.5
"""Seconds between two checks of a canary."""

log = structlog.get_logger(__name__)
canaries_total = Counter("kafka_mesh_control_canaries_total", "Canaries that came to an end.", ["outcome"])


class Canaries:
    """Watches the canary, while one runs."""

    def __init__(
        self,
        journal: Journal,
        turns: Turns,
        members: Members,
        rollouts: Rollouts,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._turns = turns
        self._members = members
        self._rollouts = rollouts
        self._clock = clock

    async def run(self) -> None:
        """Runs until cancelled; does nothing while this process does not lead."""
        led_since = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            change = canary_in(self._journal.view)
            if self._journal.why_not_leading:
                led_since = time.monotonic()
            if change is None or self._journal.why_not_leading:
                continue
            if self._someone_is_coming() and time.monotonic() < led_since + SETTLE_TIME:
                continue
            with suppress(Refusal, StoreUnavailableError):  # another call was faster, or the next check tries again
                await self._look(change)

    async def end(
        self, revision: int, *, promote: bool, caller: Caller, answer: Callable[[int], StoredAnswer | None]
    ) -> int:
        """Ends the canary before its time, by an operator's order. Returns the position of the event."""
        await self._journal.first_time(caller)
        return await self._turns.take(self._ended_by_hand(revision, promote, caller, answer))

    async def begun(self, change: events.Event) -> list[str]:
        """The warnings for the caller who began a canary, once all its gateways have answered, or after a time-out."""
        canary = change.rule_set_changed.canary
        deadline = time.monotonic() + APPLY_TIMEOUT
        while True:
            chosen = chosen_for(canary, self._members.trying())
            answered = [each for each in chosen.values() if each.answer.revision == change.position]
            if chosen and len(answered) == len(chosen):
                break
            if not await self._members.changed_within(deadline - time.monotonic()):
                break
        trying = sum(each.answer.phase is Phase.TRYING for each in answered)
        return [
            f"{canary.permille / 10:g} % of the clients of {trying} of {len(chosen)} gateways try it for "
            f"{durations.in_s(canary.duration):g} s; then everybody follows, unless a gateway refuses it or errors rise"
        ]

    def _someone_is_coming(self) -> bool:
        """Whether gateways of the canary may still connect, just after the lead began; no reason for an abort."""
        return bool(self._members.away()) or not self._members.gateways()

    async def _look(self, change: events.Event) -> None:
        elapsed_ms = (self._clock() - change.time.ToDatetime(UTC)).total_seconds() * 1000
        canary = change.rule_set_changed.canary
        judgement = judged(change.position, canary, elapsed_ms, self._members.trying())
        if judgement.outcome is Outcome.WAIT:
            return
        payload: events.RolloutSwitched | events.RolloutAborted
        if judgement.outcome is Outcome.PROMOTE:
            payload = events.RolloutSwitched(revision=change.position)
        else:
            payload = events.RolloutAborted(revision=change.position, members=judgement.members, cause=judgement.cause)
        await self._turns.take(self._rollouts.close(payload, Caller(CONTROL, "the canary has ended")))
        canaries_total.labels(judgement.outcome.value).inc()
        log.info("canary ended", revision=change.position, outcome=judgement.outcome.value, cause=judgement.cause)

    async def _ended_by_hand(
        self, revision: int, promote: bool, caller: Caller, answer: Callable[[int], StoredAnswer | None]
    ) -> int:
        change = canary_in(self._journal.view)
        if change is None or revision not in (0, change.position):
            running = f"revision {change.position} is" if change else "none is"
            raise NotAllowed(
                "NO_CANARY", "rules", f"no canary of revision {revision} runs ({running} being tried); see the status"
            )
        payload: events.RolloutSwitched | events.RolloutAborted
        if promote:
            payload = events.RolloutSwitched(revision=change.position)
        else:
            payload = events.RolloutAborted(revision=change.position, cause=f"{caller.actor} gave it up")
        position = await self._rollouts.close(payload, caller, answer)
        canaries_total.labels("promoted by hand" if promote else "given up by hand").inc()
        return position


def canary_in(view: MeshView) -> events.Event | None:
    """The change that clients are trying; None while no canary runs."""
    rollout = view.rollout
    return rollout if rollout is not None and rollout.rule_set_changed.HasField("canary") else None


def refuse_while_tried(view: MeshView) -> None:
    """Refuses a change while a canary runs: another change would make it unclear what clients are trying."""
    change = canary_in(view)
    if change is not None:
        canary = change.rule_set_changed.canary
        raise Conflict(
            "CANARY_RUNNING",
            f"revision {change.position} of {change.actor} is being tried for {durations.in_s(canary.duration):g} s: "
            "wait for its end, or end it with `meshctl canary promote` or `meshctl canary abort`, then retry",
            {"revision": str(change.position)},
        )
