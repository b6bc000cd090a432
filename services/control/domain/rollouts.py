"""When a rule change that moves topics may switch: all gateways hold, or it is given up. A pure decision over what
members said.

Every gateway that was there at the start, or that came since, must answer HELD for the revision. One that refuses
ends the rollout at once; one that says nothing, or that left meanwhile, has until the hold runs out: it may still
serve clients under the old table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """What a member answered last."""

    UNKNOWN = "unknown"
    APPLIED = "applied"
    HELD = "held"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """A member's answer for the table of `revision`."""

    revision: int
    phase: Phase
    reason: str = ""


class Verdict(Enum):
    """What to do about a rollout."""

    WAIT = "wait"
    SWITCH = "switch"
    ABORT = "abort"


def verdict(revision: int, expected: Collection[str], answers: Mapping[str, Answer]) -> Verdict:
    """`expected`: gateways there at the start; `answers`: gateways connected now, with what they said last."""
    required = {*expected, *answers}
    if any(answer.phase is Phase.REFUSED and answer.revision == revision for answer in answers.values()):
        return Verdict.ABORT
    if all(name in answers and holds(answers[name], revision) for name in required):
        return Verdict.SWITCH
    return Verdict.WAIT


def holds(answer: Answer, revision: int) -> bool:
    return answer.phase is Phase.HELD and answer.revision == revision


def answered(answer: Answer, revision: int) -> bool:
    """Whether the member has said what becomes of the table of `revision`: it runs it or a later one, or refused it."""
    return answer.phase in (Phase.APPLIED, Phase.REFUSED) and answer.revision >= revision


def laggards(revision: int, expected: Collection[str], answers: Mapping[str, Answer]) -> dict[str, str]:
    """Members because of whom the rollout is given up, each with what it did instead of holding."""
    late: dict[str, str] = {}
    for name in sorted({*expected, *answers}):
        answer = answers.get(name)
        if answer is None:
            late[name] = "left while the change was rolled out"
        elif answer.phase is Phase.REFUSED and answer.revision == revision:
            late[name] = f"refused: {answer.reason}"
        elif not holds(answer, revision):
            late[name] = f"did not hold in time (it runs revision {answer.revision})"
    refused = {name: reason for name, reason in late.items() if reason.startswith("refused")}
    return refused or late
