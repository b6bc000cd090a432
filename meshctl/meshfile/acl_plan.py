"""The part of a plan that is about ACLs: ACLs that come come first, then the mode, then ACLs that go.

In this order no client loses a right for a moment that the file lets it keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mesh.acls.words import acl_text, mode_word
from mesh.rpc import acls
from meshctl.meshfile.action import Action
from meshctl.meshfile.model import AclPolicyEntry, Finding, MeshFile

NO_POLICY = acls.AclPolicy()


@dataclass(frozen=True, slots=True)
class AclStep:
    """The action on one ACL."""

    action: Action
    acl: acls.Acl

    @property
    def detail(self) -> str:
        return acl_text(self.acl)


@dataclass(frozen=True, slots=True)
class AclPolicyStep:
    """The action on the mode and the super users. Both are what they will be."""

    action: Action
    mode: acls.AclMode.ValueType
    super_users: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class AclPlan:
    """All steps about ACLs."""

    steps_of_acls: tuple[AclStep, ...] = ()
    policy: AclPolicyStep | None = None

    def of(self, action: Action) -> list[acls.Acl]:
        return [step.acl for step in self.steps_of_acls if step.action is action]

    @property
    def changes_policy(self) -> bool:
        return self.policy is not None and self.policy.action is not Action.UNCHANGED

    @property
    def steps(self) -> tuple[tuple[Action, str, str, str], ...]:
        """Action, kind, name and detail of each step, in the order in which they are made."""
        kept = [(step.action, "acl", step.acl.principal, step.detail) for step in self.steps_of_acls]
        middle = [] if self.policy is None else [(self.policy.action, "acl", "policy", self.policy.detail)]
        gone = [step for step in kept if step[0] is Action.REMOVE]
        return (*(step for step in kept if step[0] is not Action.REMOVE), *middle, *gone)


def acl_plan(file: MeshFile, policy: acls.AclPolicy, *, prune: bool) -> tuple[AclPlan, list[Finding]]:
    """The plan, and why the file can't be applied."""
    steps = tuple(_acl_steps(file, policy.acls, prune))
    after = None if file.acl_policy is None else _policy_step(file.acl_policy, policy)
    mode = policy.mode if after is None else after.mode
    super_users: Sequence[str] = policy.super_users if after is None else after.super_users
    wanted = {entry.acl.SerializeToString(deterministic=True) for entry in file.acls or ()}
    left = [entry.acl for entry in file.acls or ()]
    if not (prune and file.acls is not None):
        left += [each for each in policy.acls if each.SerializeToString(deterministic=True) not in wanted]
    plan = AclPlan(steps, after)
    changes = plan.changes_policy or any(step.action is not Action.UNCHANGED for step in steps)
    if changes and mode == acls.ACL_MODE_ENFORCE and not super_users and not any(map(_allows, left)):
        text = "mode enforce would refuse every client: no super user, and no ACL that allows, would be left"
        line = file.acl_policy.line if file.acl_policy is not None else 1
        return plan, [Finding(line, "acls", text)]
    return plan, []


def _allows(acl: acls.Acl) -> bool:
    return acl.permission == acls.ACL_PERMISSION_ALLOW


def _acl_steps(file: MeshFile, known: Sequence[acls.Acl], prune: bool) -> Iterable[AclStep]:
    by_key = {each.SerializeToString(deterministic=True): each for each in known}
    for entry in file.acls or ():
        current = by_key.pop(entry.acl.SerializeToString(deterministic=True), None)
        yield AclStep(Action.CREATE if current is None else Action.UNCHANGED, entry.acl)
    if prune and file.acls is not None:
        yield from (AclStep(Action.REMOVE, each) for each in by_key.values())


def _policy_step(wanted: AclPolicyEntry, policy: acls.AclPolicy) -> AclPolicyStep:
    before = policy.mode or acls.ACL_MODE_OFF
    mode = before if wanted.mode is None else wanted.mode
    had = tuple(policy.super_users)
    super_users = had if wanted.super_users is None else wanted.super_users
    said = [f"mode {mode_word(mode)}" + (f" (was {mode_word(before)})" if mode != before else "")]
    if wanted.super_users is not None:
        was = f" (was {names(had)})" if super_users != had else ""
        said.append(f"super users {names(super_users)}{was}")
    action = Action.UNCHANGED if (mode, super_users) == (before, had) else Action.UPDATE
    return AclPolicyStep(action, mode, super_users, "; ".join(said))


def names(super_users: Sequence[str]) -> str:
    return ", ".join(super_users) or "none"
