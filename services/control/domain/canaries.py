"""Canaries: a change that some clients try first. What may be tried, and when it is promoted or given up.

Tried may be what decides nothing about where a topic lives, nor which cluster coordinates a group or a transaction:
those have one home, whoever asks. So far that is rules about client software; validation, quotas and access are to
come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mesh.routing import RoutingTable, Subject
from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.rollouts import Answer, Phase, refuses

DEFAULT_TRY_MS = 60_000
SHORTEST_TRY_MS, LONGEST_TRY_MS = 1_000, 24 * 3_600_000
DEFAULT_MORE_ERRORS = 10
"""In a thousand."""
ENOUGH_REQUESTS = 20
"""Of those who try it, before errors say anything."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests answered, and those of them that ended in a failure."""

    answered: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.answered + other.answered, self.failed + other.failed)

    @property
    def permille(self) -> float:
        return 1000 * self.failed / self.answered if self.answered else 0.0


@dataclass(frozen=True, slots=True)
class Trying:
    """What a gateway says while a canary runs."""

    answer: Answer
    tried: Counts = Counts()
    others: Counts = Counts()


class Outcome(Enum):
    """What to do about a canary."""

    WAIT = "wait"
    PROMOTE = "promote"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome; a cause, and members because of whom, when it is given up."""

    outcome: Outcome
    cause: str = ""
    members: Sequence[str] = ()


WAIT, PROMOTE = Judgement(Outcome.WAIT), Judgement(Outcome.PROMOTE)


def canary_of(wanted: events.Canary, known: Collection[str]) -> events.Canary:
    """The canary with all that it left to us; InvalidField when it can't be. `known`: gateways."""
    members = sorted(name.removeprefix("members/") for name in wanted.members)
    for name in members:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise InvalidField("options.canary.members", f"control knows no gateway {name!r} (it knows {names})")
    if not 0 <= wanted.permille <= 1000:
        raise InvalidField("options.canary.permille", f"{wanted.permille} is not between 1 and 1000 (0 counts as 1000)")
    if wanted.try_ms and not SHORTEST_TRY_MS <= wanted.try_ms <= LONGEST_TRY_MS:
        raise InvalidField(
            "options.canary.try_ms",
            f"{wanted.try_ms} is not between {SHORTEST_TRY_MS} (a second) and {LONGEST_TRY_MS} (a day)",
        )
    if not 0 <= wanted.max_more_errors_permille <= 1000:
        raise InvalidField(
            "options.canary.max_more_errors_permille", f"{wanted.max_more_errors_permille} is not between 0 and 1000"
        )
    return events.Canary(
        members=members,
        permille=wanted.permille or 1000,
        try_ms=wanted.try_ms or DEFAULT_TRY_MS,
        max_more_errors_permille=wanted.max_more_errors_permille or DEFAULT_MORE_ERRORS,
    )


def check_may_be_tried(before: RoutingTable, after: RoutingTable) -> None:
    """NotAllowed when the change decides where something has its home."""
    if _homes(before) != _homes(after):
        raise NotAllowed(
            "NOT_FOR_CANARIES",
            "rules",
            "the change decides where topics live, or which cluster coordinates groups or transactions: some clients "
            "would find others than the rest; make it without a canary (a change that moves topics is held by all "
            "gateways and lost on none), or try rules about client software alone",
        )


def _homes(table: RoutingTable) -> list[object]:
    return [rule for rule in table.rules if rule.match.subject is not Subject.CLIENT_SOFTWARE]


def chosen_for(canary: events.Canary, gateways: Mapping[str, Trying]) -> dict[str, Trying]:
    """Those of the gateways that take part."""
    return {name: each for name, each in gateways.items() if not canary.members or name in canary.members}


def judged(revision: int, canary: events.Canary, elapsed_ms: float, gateways: Mapping[str, Trying]) -> Judgement:
    """What becomes of the canary of `revision` now; `gateways`: those that are connected."""
    chosen = chosen_for(canary, gateways)
    refusing = sorted(name for name, each in chosen.items() if refuses(each.answer, revision))
    if refusing:
        reasons = "; ".join(f"{name} refused: {chosen[name].answer.reason}" for name in refusing)
        return Judgement(Outcome.ABORT, reasons, refusing)
    trying = [each for each in chosen.values() if each.answer == Answer(revision, Phase.TRYING, each.answer.reason)]
    tried, others = sum((each.tried for each in trying), Counts()), sum((each.others for each in trying), Counts())
    if tried.answered >= ENOUGH_REQUESTS and tried.permille > others.permille + canary.max_more_errors_permille:
        return Judgement(Outcome.ABORT, f"errors rose: {_share(tried)} where it is tried, {_share(others)} elsewhere")
    if elapsed_ms < canary.try_ms:
        return WAIT
    missing = sorted(set(canary.members) - {name for name, each in chosen.items() if each in trying})
    if missing:
        return Judgement(Outcome.ABORT, f"it was not tried by {', '.join(missing)}", missing)
    if not trying:
        return Judgement(Outcome.ABORT, "no gateway tried it")
    return PROMOTE


def _share(counts: Counts) -> str:
    return f"{counts.failed} of {counts.answered} requests failed"
