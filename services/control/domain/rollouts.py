"""When a rule change that moves topics may switch: all gateways hold, or it is given up. A pure decision over what
members said.

Every gateway that was there at the start, or that came since, must answer HELD for the revision. One that refuses
ends the rollout at once; one that says nothing, or that left meanwhile without a goodbye, has until the hold runs
out: it may still serve clients under the old table. Gateways without which the operator goes on are not asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from mesh.rpc import events


class Phase(Enum):
    """What a member answered last."""

    UNKNOWN = "unknown"
    APPLIED = "applied"
    HELD = "held"
    TRYING = "trying"
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


Answers = Mapping[str, Answer]


def verdict(revision: int, expected: Collection[str], answers: Answers, without: Collection[str] = ()) -> Verdict:
    """`expected`: gateways there at the start; `answers`: gateways connected now, with what they said last."""
    required = _required(expected, answers, without)
    if any(refuses(answers[name], revision) for name in required if name in answers):
        return Verdict.ABORT
    if all(name in answers and holds(answers[name], revision) for name in required):
        return Verdict.SWITCH
    return Verdict.WAIT


def holds(answer: Answer, revision: int) -> bool:
    return answer.phase is Phase.HELD and answer.revision == revision


def refuses(answer: Answer, revision: int) -> bool:
    return answer.phase is Phase.REFUSED and answer.revision == revision


def runs(answer: Answer, revision: int) -> bool:
    """Whether the member runs the table of `revision`, or a later one."""
    return answer.phase is Phase.APPLIED and answer.revision >= revision


def answered(answer: Answer, revision: int) -> bool:
    """Whether the member has said what becomes of the table of `revision`: it runs it or a later one, or refused it."""
    return answer.phase in (Phase.APPLIED, Phase.REFUSED) and answer.revision >= revision


def laggards(
    revision: int, expected: Collection[str], answers: Answers, without: Collection[str] = ()
) -> dict[str, str]:
    """Members because of whom the rollout is given up, each with what it did instead of holding."""
    late: dict[str, str] = {}
    for name in _required(expected, answers, without):
        answer = answers.get(name)
        if answer is None:
            late[name] = "left while the change was rolled out"
        elif refuses(answer, revision):
            late[name] = f"refused: {answer.reason}"
        elif not holds(answer, revision):
            late[name] = f"did not hold in time (it runs revision {answer.revision})"
    refused = {name: reason for name, reason in late.items() if reason.startswith("refused")}
    return refused or late


def behind(revision: int, answers: Answers, away: Mapping[str, float], without: Collection[str] = ()) -> dict[str, str]:
    """Who does not run `revision` yet, each with what is known of it; `away`: seconds since a gateway was heard of."""
    found = {name: f"has not been heard of for {seconds:.0f} s" for name, seconds in away.items()}
    for name, answer in answers.items():
        if answer.phase is Phase.REFUSED and answer.revision >= revision:
            found[name] = f"refused revision {answer.revision}: {answer.reason}"
        elif not runs(answer, revision):
            found[name] = f"runs revision {answer.revision}"
    return {name: found[name] for name in sorted(found) if name not in without}


def is_for_some(change: events.RuleSetChanged) -> bool:
    """Whether a change is for some clients only, or brings a default cluster: what release 0.1 does not know."""
    matches = [each.created.match for each in change.changes] + [each.updated.match for each in change.changes]
    return change.HasField("canary") or any(each.HasField("client") or each.unmatched_topics for each in matches)


def _required(expected: Collection[str], answers: Answers, without: Collection[str]) -> list[str]:
    return sorted({*expected, *answers} - {*without})
