"""The policy of approvals: which changes need a second person, and whether a policy can be set.

A rule that is narrowed counts for a change that names one of its things, and for a change that names nothing of the
kind: such a change may concern everything. So a rule for topics `pay-` also counts for a regex rule and for a revert.
"""

from __future__ import annotations

from collections.abc import Collection

from mesh import durations
from mesh.rpc import access, events, grants, proposals
from mesh.wording import change_kind_word
from services.control.domain.access.grants import MOST_NAMES, NAME, PRINCIPAL
from services.control.domain.access.things import Kind, Thing, bounds
from services.control.domain.errors import Conflict, InvalidField

APPROVALS = "approvals"
"""The stream of the policy."""
ALWAYS = (access.CHANGE_KIND_APPROVALS, access.CHANGE_KIND_ROLES)
"""Kinds that need a second person with any policy. Otherwise an admin could drop the policy, or make a second name."""
MOST_RULES = 100
"""Each changing call tries them one after the other."""
USUAL_EXPIRY_S = 86_400
SHORTEST_EXPIRY_S, LONGEST_EXPIRY_S = 60, 30 * 86_400


def is_on(policy: proposals.ApprovalPolicy) -> bool:
    return bool(policy.rules)


def may_ask(policy: proposals.ApprovalPolicy, kind: access.ChangeKind.ValueType) -> bool:
    """Whether the policy may ask a second person about a change of this kind, whatever the change names."""
    if kind == access.CHANGE_KIND_UNSPECIFIED or not is_on(policy):
        return False
    return kind in ALWAYS or any(_has(rule, kind) for rule in policy.rules)


def asks(policy: proposals.ApprovalPolicy, kind: access.ChangeKind.ValueType, things: Collection[Thing]) -> bool:
    """Whether a change of this kind that names these things needs a second person."""
    if not may_ask(policy, kind):
        return False
    return kind in ALWAYS or any(_has(rule, kind) and _concerns(rule.narrowing, things) for rule in policy.rules)


def _has(rule: proposals.ApprovalRule, kind: access.ChangeKind.ValueType) -> bool:
    return not rule.kinds or kind in rule.kinds


def _concerns(narrowing: grants.Narrowing, things: Collection[Thing]) -> bool:
    for kind, names in bounds(narrowing).items():
        named = [thing for thing in things if thing.kind is kind]
        if named and not any(_meets(thing, name) for thing in named for name in names):
            return False
    return True


def _meets(thing: Thing, name: str) -> bool:
    if thing.kind is not Kind.TOPIC:
        return thing.name == name
    return thing.name.startswith(name) or (thing.is_beginning and name.startswith(thing.name))


def set_policy(
    known: proposals.ApprovalPolicy, request: proposals.SetApprovalPolicyRequest
) -> events.ApprovalPolicySet | None:
    """The event of a policy; None if the policy is this already."""
    if request.expected_revision and request.expected_revision != known.revision:
        raise Conflict(
            "REVISION_MISMATCH",
            f"the policy of approvals is of revision {known.revision}, and the caller saw {request.expected_revision}: "
            "read again, then retry",
            {"revision": str(known.revision)},
        )
    _check(request.policy)
    wanted, before = _decided(request.policy), _decided(known)
    return None if wanted == before else events.ApprovalPolicySet(policy=wanted)


def fold_policy(known: proposals.ApprovalPolicy, event: events.Event) -> proposals.ApprovalPolicy:
    """The policy after an event: the very same value if the event does not change it."""
    if not event.HasField("approval_policy_set"):
        return known
    policy = _decided(event.approval_policy_set.policy)
    policy.revision = event.position
    return policy


def expiry_s(policy: proposals.ApprovalPolicy) -> int:
    return durations.whole_s(policy.expire_after) or USUAL_EXPIRY_S


def _decided(policy: proposals.ApprovalPolicy) -> proposals.ApprovalPolicy:
    decided = proposals.ApprovalPolicy()
    decided.CopyFrom(policy)
    decided.ClearField("revision")
    return decided


def _check(policy: proposals.ApprovalPolicy) -> None:
    if len(policy.rules) > MOST_RULES:
        raise InvalidField("policy.rules", f"has {len(policy.rules)} rules, and {MOST_RULES} are possible")
    for number, rule in enumerate(policy.rules):
        _check_rule(f"policy.rules[{number}]", rule)
    expiry_s = durations.whole_s(policy.expire_after)
    if expiry_s and not SHORTEST_EXPIRY_S <= expiry_s <= LONGEST_EXPIRY_S:
        raise InvalidField(
            "policy.expire_after",
            f"{expiry_s} s is not from {SHORTEST_EXPIRY_S} s to {LONGEST_EXPIRY_S} s; 0 means {USUAL_EXPIRY_S} s",
        )
    if len(policy.automations) > MOST_NAMES:
        raise InvalidField("policy.automations", f"has {len(policy.automations)} names, and {MOST_NAMES} are possible")
    for name in policy.automations:
        if not PRINCIPAL.fullmatch(name):
            raise InvalidField("policy.automations", f"{name!r} is no principal: 1 to 200 characters without spaces")


def _check_rule(place: str, rule: proposals.ApprovalRule) -> None:
    for kind in rule.kinds:
        if kind == access.CHANGE_KIND_UNSPECIFIED or kind not in access.ChangeKind.values():
            raise InvalidField(
                f"{place}.kinds", f"{change_kind_word(kind)} is no kind of change; leave all out for every kind"
            )
    for field, names in rule.narrowing.ListFields():
        if len(names) > MOST_NAMES:
            raise InvalidField(f"{place}.narrowing.{field.name}", f"has {len(names)} names, {MOST_NAMES} are possible")
        for name in names:
            if not NAME.fullmatch(name):
                raise InvalidField(
                    f"{place}.narrowing.{field.name}",
                    f"{name!r} is no name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'",
                )
