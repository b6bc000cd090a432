"""A change of the policy against the traffic of the past: which clients it would have refused. No I/O.

The tables of traffic know principal, client.id, topic and API. So Produce and Fetch can be judged. Groups,
transactional ids, operations on the cluster, clients' addresses and groups of principals are in no table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesh.acls.acl import EVERY_HOST, Operation, ResourceType
from mesh.acls.policy import Policy
from mesh.acls.subjects import Subject
from mesh.rpc import traffic
from meshctl.output import count

NEEDS: Final[Mapping[str, Operation]] = {
    "Produce": Operation.WRITE,
    "Fetch": Operation.READ,
    "ShareFetch": Operation.READ,
}
"""API of a gateway -> what it needs on its topic."""
NOBODY: Final = "User:ANONYMOUS"
USER: Final = "User:"
GROUP: Final = "Group:"
MOST: Final = 1_000
"""Combinations of one answer of control, those with the most calls."""
NEVER_KNOWN: Final = (
    "No table of traffic has groups, transactional ids, operations on the cluster, addresses of clients, or groups of "
    "principals: they are not judged by traffic."
)


@dataclass(frozen=True, slots=True)
class Use:
    """A client has used a topic by one API."""

    principal: str
    shown: str
    """The principal as the tables have it."""
    client: str
    topic: str
    api: str
    calls: int
    records: int

    @property
    def operation(self) -> Operation:
        return NEEDS[self.api]


@dataclass(frozen=True, slots=True)
class Refused:
    """A use that would have been refused, and why."""

    use: Use
    reason: str
    was_allowed: bool
    """By the policy as it is now, if that were enforced."""


@dataclass(frozen=True, slots=True)
class Judged:
    """All of the traffic, judged by a policy."""

    refused: tuple[Refused, ...]
    judged_calls: int
    unknown_calls: Mapping[str, int]
    """Calls that were not judged, by their API; those that gateways counted together have none."""
    all_calls: int
    """As control counts them, those beyond the longest answer included."""
    passed_over: int
    """ACLs for one address or one group of principals."""


def judge(answer: traffic.TopTalkersResponse, now: Policy, then: Policy) -> Judged:
    """`now`: the policy that is; `then`: the policy after the change."""
    refused: list[Refused] = []
    unknown: dict[str, int] = defaultdict(int)
    judged_calls = 0
    for talker in answer.talkers:
        who, figures = talker.who, talker.figures
        if who.api not in NEEDS or not who.topic:
            unknown[who.api] += figures.calls
            continue
        judged_calls += figures.calls
        use = Use(
            principal_of(who.principal), who.principal, who.client, who.topic, who.api, figures.calls, figures.records
        )
        subject = Subject((use.principal,), "")
        decision = then.decide(subject, use.operation, ResourceType.TOPIC, use.topic)
        if not decision.allowed:
            before = now.decide(subject, use.operation, ResourceType.TOPIC, use.topic)
            refused.append(Refused(use, decision.reason, before.allowed))
    return Judged(tuple(refused), judged_calls, dict(unknown), answer.total.calls, _passed_over(then))


def principal_of(shown: str) -> str:
    """The principal of ACLs; traffic has none for a client that proved nothing."""
    if not shown:
        return NOBODY
    return shown if ":" in shown else f"{USER}{shown}"


def _passed_over(policy: Policy) -> int:
    return sum(each.host != EVERY_HOST or each.principal.startswith(GROUP) for each in policy.acls)


def limits(of: Judged) -> Iterable[str]:
    """Sentences about what is not known."""
    beyond = of.all_calls - of.judged_calls - sum(of.unknown_calls.values())
    if beyond > 0:
        yield f"{count(beyond, 'call')} of further clients were not looked at: control tells of {MOST} combinations."
    together = of.unknown_calls.get("", 0)
    if together:
        yield f"{count(together, 'call')} were counted together, because gateways had too many combinations."
    others = {api or "?": calls for api, calls in sorted(of.unknown_calls.items()) if api}
    if others:
        named = ", ".join(f"{api} {calls:,}" for api, calls in others.items())
        yield f"Calls that were not judged, by API: {named}."
    if of.passed_over:
        yield f"{count(of.passed_over, 'ACL')} for one address or one group counted as if no client were meant."
    yield NEVER_KNOWN


def document(of: Judged, last: Mapping[Use, str]) -> dict[str, Any]:
    """For programs. `last`: when the last call was, as far as it was asked."""
    return {
        "refused": [
            {
                "principal": each.use.principal, "client": each.use.client, "topic": each.use.topic,
                "api": each.use.api, "operation": each.use.operation.word, "calls": each.use.calls,
                "records": each.use.records, "last_time": last.get(each.use, ""), "reason": each.reason,
                "was_allowed": each.was_allowed,
            }
            for each in of.refused
        ],
        "judged_calls": of.judged_calls,
        "unknown_calls": dict(of.unknown_calls),
        "not_known": list(limits(of)),
    }  # fmt: skip
