"""Canaries: a change that some clients try first. The module says which changes are allowed, and when one ends.

A canary may not decide on which cluster a topic is, nor which cluster coordinates a group or a transaction. Those have
one home for all clients. So far, only rules about client software may be tried; validation, quotas and access are to
come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mesh import durations
from mesh.routing import RoutingTable, Subject
from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.members.rollouts import Answer, Phase, refuses

DEFAULT_TRY_MS = 60_000
SHORTEST_TRY_MS, LONGEST_TRY_MS = 1_000, 24 * 3_600_000
DEFAULT_MORE_ERRORS = 10
"""Per thousand requests."""
ENOUGH_REQUESTS = 20
"""Requests of the clients that try the change, before their errors count."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of answered requests, and of those that ended in a failure."""

    answered: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.answered + other.answered, self.failed + other.failed)

    @property
    def permille(self) -> float:
        return 1000 * self.failed / self.answered if self.answered else 0.0


@dataclass(frozen=True, slots=True)
class Trying:
    """A gateway's report while a canary runs."""

    answer: Answer
    tried: Counts = Counts()
    others: Counts = Counts()


class Outcome(Enum):
    """The decision about a canary."""

    WAIT = "wait"
    PROMOTE = "promote"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome. If the canary is aborted: also the cause, and the gateways that caused the abort."""

    outcome: Outcome
    cause: str = ""
    members: Sequence[str] = ()


WAIT, PROMOTE = Judgement(Outcome.WAIT), Judgement(Outcome.PROMOTE)


def canary_of(wanted: events.Canary, known: Collection[str]) -> events.Canary:
    """The canary with defaults for all unset fields; InvalidField if a field is wrong. `known`: names of gateways."""
    members = sorted(name.removeprefix("members/") for name in wanted.members)
    for name in members:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise InvalidField("options.canary.members", f"control knows no gateway {name!r} (it knows {names})")
    if not 0 <= wanted.permille <= 1000:
        raise InvalidField("options.canary.permille", f"{wanted.permille} is not between 1 and 1000 (0 counts as 1000)")
    duration_ms = durations.whole_ms(wanted.duration)
    if duration_ms and not SHORTEST_TRY_MS <= duration_ms <= LONGEST_TRY_MS:
        raise InvalidField("options.canary.duration", f"{duration_ms} ms is not between a second and a day")
    if not 0 <= wanted.max_more_errors_permille <= 1000:
        raise InvalidField(
            "options.canary.max_more_errors_permille", f"{wanted.max_more_errors_permille} is not between 0 and 1000"
        )
    return events.Canary(
        members=members,
        permille=wanted.permille or 1000,
        duration=durations.of_ms(duration_ms or DEFAULT_TRY_MS),
        max_more_errors_permille=wanted.max_more_errors_permille or DEFAULT_MORE_ERRORS,
    )


def check_may_be_tried(before: RoutingTable, after: RoutingTable) -> None:
    """NotAllowed when the change decides the cluster of a topic, a group or a transactional id."""
    if _homes(before) != _homes(after):
        raise NotAllowed(
            "NOT_FOR_CANARIES",
            "rules",
            "the change routes topics to another cluster, or changes which cluster coordinates groups or transactions. "
            "In a canary, some clients would then use another cluster than the rest. Make the change without a canary: "
            "all gateways hold requests while topics move, and no record is lost. A canary can try rules about client "
            "software alone",
        )


def _homes(table: RoutingTable) -> list[object]:
    return [rule for rule in table.rules if rule.match.subject is not Subject.CLIENT_SOFTWARE]


def chosen_for(canary: events.Canary, gateways: Mapping[str, Trying]) -> dict[str, Trying]:
    """The gateways that take part in the canary."""
    return {name: each for name, each in gateways.items() if not canary.members or name in canary.members}


def judged(revision: int, canary: events.Canary, elapsed_ms: float, gateways: Mapping[str, Trying]) -> Judgement:
    """The decision about the canary of `revision` now; `gateways`: the connected gateways."""
    chosen = chosen_for(canary, gateways)
    refusing = sorted(name for name, each in chosen.items() if refuses(each.answer, revision))
    if refusing:
        reasons = "; ".join(f"{name} refused: {chosen[name].answer.reason}" for name in refusing)
        return Judgement(Outcome.ABORT, reasons, refusing)
    trying = [each for each in chosen.values() if each.answer == Answer(revision, Phase.TRYING, each.answer.reason)]
    tried, others = sum((each.tried for each in trying), Counts()), sum((each.others for each in trying), Counts())
    if tried.answered >= ENOUGH_REQUESTS and tried.permille > others.permille + canary.max_more_errors_permille:
        return Judgement(Outcome.ABORT, f"errors rose: {_share(tried)} where it is tried, {_share(others)} elsewhere")
    if elapsed_ms < durations.whole_ms(canary.duration):
        return WAIT
    missing = sorted(set(canary.members) - {name for name, each in chosen.items() if each in trying})
    if missing:
        return Judgement(Outcome.ABORT, f"it was not tried by {', '.join(missing)}", missing)
    if not trying:
        return Judgement(Outcome.ABORT, "no gateway tried it")
    return PROMOTE


def _share(counts: Counts) -> str:
    return f"{counts.failed} of {counts.answered} requests failed"
