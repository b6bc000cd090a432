"""Whether a rule change that moves topics may switch: either all gateways hold, or control aborts it.

This is a pure decision over the answers of the members. Every gateway that was connected at the start, or connected
since, must answer HELD for the revision. If a gateway refuses, the rollout ends at once. If a gateway is silent, or has
left meanwhile without a goodbye, control waits for it until the hold runs out. Such a gateway may still serve clients
under the old table. Control does not ask gateways that the operator leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from mesh.rpc import events


class Phase(Enum):
    """The last answer of a member."""

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
    """The decision about a rollout."""

    WAIT = "wait"
    SWITCH = "switch"
    ABORT = "abort"


Answers = Mapping[str, Answer]


def verdict(revision: int, expected: Collection[str], answers: Answers, without: Collection[str] = ()) -> Verdict:
    """The decision; `expected`: gateways at the start; `answers`: connected gateways with their last answers."""
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
    """Whether the member has answered for the table of `revision`: it runs it or a later one, or refused it."""
    return answer.phase in (Phase.APPLIED, Phase.REFUSED) and answer.revision >= revision


def laggards(
    revision: int, expected: Collection[str], answers: Answers, without: Collection[str] = ()
) -> dict[str, str]:
    """Members that make control abort the rollout, each with what it did instead of holding."""
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
    """Gateways that do not run `revision` yet, each with its state; `away`: gateway -> seconds of silence."""
    found = {name: f"has not been heard of for {seconds:.0f} s" for name, seconds in away.items()}
    for name, answer in answers.items():
        if answer.phase is Phase.REFUSED and answer.revision >= revision:
            found[name] = f"refused revision {answer.revision}: {answer.reason}"
        elif not runs(answer, revision):
            found[name] = f"runs revision {answer.revision}"
    return {name: found[name] for name in sorted(found) if name not in without}


def is_for_some(change: events.RuleSetChanged) -> bool:
    """Whether a change is for some clients only, or adds a default cluster: release 0.1 knows neither."""
    matches = [each.created.match for each in change.changes] + [each.updated.match for each in change.changes]
    return change.HasField("canary") or any(each.HasField("client") or each.unmatched_topics for each in matches)


def _required(expected: Collection[str], answers: Answers, without: Collection[str]) -> list[str]:
    return sorted({*expected, *answers} - {*without})
