"""Carrying a plan out: all clusters, record rules and ACLs are checked before the first is changed. Then clusters
change, rules in one step, record rules, ACLs; last go the clusters that leave. A failure names the changes before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from mesh.rpc import acls, admin, record_rules, tenants
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError, Violation, from_rpc
from meshctl.meshfile.action import Action
from meshctl.meshfile.plan import ClusterStep, Plan, RecordRuleStep

T = TypeVar("T")
ACLS_AT_ONCE, TENANTS_AT_ONCE = 1_000, 100
"""Control takes so many in one call."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to apply."""

    dry_run: bool
    allow_unreachable: bool
    create_topics: bool
    accept_skip: bool
    allow_shadowed: bool
    wait: bool
    without: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class Applied:
    """The changes that were made."""

    clusters: list[admin.Cluster] = field(default_factory=list)
    rules: admin.RuleChangeResponse | None = None
    """None when control was not asked."""
    record_rules: list[record_rules.RecordRule] = field(default_factory=list)
    tenants_changed: int = 0
    acls_added: int = 0
    acls_removed: int = 0
    removed: list[str] = field(default_factory=list)
    """Resource names of clusters and record rules."""


class Applying:
    """One run of `apply`."""

    def __init__(self, connection: Connection, plan: Plan, options: Options) -> None:
        self._connection = connection
        self._plan = plan
        self._options = options
        self._done: list[str] = []
        self._waiting: list[MeshctlError] = []
        """Steps that wait for a second person."""

    def run(self) -> Applied:
        """Checks all, then does all; with dry_run only the first."""
        applied = Applied()
        self._check()
        if self._options.dry_run:
            applied.rules = self._change_rules()
            return applied
        for step in self._plan.cluster_changes:
            changed = self._do(step.spec.cluster_name, partial(self._change_cluster, step))
            applied.clusters += [changed] if changed is not None else []
        self._check_nothing_waits()
        applied.rules = self._do("rules", self._change_rules)
        self._check_nothing_waits()
        for change in self._plan.record_rule_changes:
            name = change.spec.record_rule_id
            if change.action is Action.REMOVE:
                self._do(name, partial(self._remove_record_rule, change))
                applied.removed.append(f"recordrules/{name}")
            else:
                made = self._do(name, partial(self._change_record_rule, change))
                applied.record_rules += [made] if made is not None else []
        self._check_nothing_waits()
        for tenants_at_once in self._tenants():
            changed_tenants = self._do("tenants", partial(self._change_tenants, tenants_at_once))
            applied.tenants_changed += 0 if changed_tenants is None else len(changed_tenants.changed)
        self._check_nothing_waits()
        self._change_acls(applied)
        for step in self._plan.removed_clusters:
            self._do(step.spec.cluster_name, partial(self._remove_cluster, step))
            applied.removed.append(f"clusters/{step.spec.cluster_name}")
        self._check_nothing_waits()
        return applied

    def _check_nothing_waits(self) -> None:
        """Ends the run if steps wait for a second person: later steps may rest on them."""
        if not self._waiting:
            return
        done = ", ".join(self._done) or "nothing"
        raise MeshctlError(
            f"the file is not applied yet: changes wait for a second person; changed before that: {done}. Apply the "
            "file again when they are approved, it goes on from there",
            ExitCode.NEEDS_APPROVAL,
            status=self._waiting[0].status,
            violations=[Violation(each.proposal, each.message) for each in self._waiting],
            proposal=self._waiting[0].proposal,
        )

    def _check(self) -> None:
        """Lets control check the changes, as far as possible before their clusters are registered; reports all errors
        at once.
        """
        checks: list[tuple[str, Callable[[], object]]] = [
            (step.spec.cluster_name, partial(self._change_cluster, step, validate_only=True))
            for step in self._plan.cluster_changes
        ]
        checks += [
            (step.spec.record_rule_id, partial(self._change_record_rule, step, validate_only=True))
            for step in self._plan.record_rule_changes
            if step.action is not Action.REMOVE and not self._plan.new_clusters & clusters_of(step.spec)
        ]
        checks += [("acls", partial(self._add_acls, each, validate_only=True)) for each in self._acls(Action.CREATE)]
        checks += [("tenants", partial(self._change_tenants, each, validate_only=True)) for each in self._tenants()]
        if self._plan.acls.changes_policy:
            checks.append(("acl_policy", partial(self._set_acl_policy, validate_only=True)))
        failures: list[MeshctlError] = []
        violations: list[Violation] = []
        for name, check in checks:
            try:
                check()
            except grpc.RpcError as error:
                failure = from_rpc(error, self._connection.endpoint)
                failures.append(failure)
                violations.append(Violation(name, failure.message))
                violations += [Violation(f"{name} {each.place}", each.text) for each in failure.violations]
        if failures:
            worst = failures[0]
            raise MeshctlError(
                "control refuses what the file says; nothing was changed",
                ExitCode(worst.exit_code),
                status=worst.status,
                violations=violations,
            )

    def _do(self, what: str, action: Callable[[], T]) -> T | None:
        """One step; None if it waits for a second person. A failure names the changes that were made before it."""
        try:
            result = action()
        except grpc.RpcError as error:
            failure = from_rpc(error, self._connection.endpoint)
            if failure.proposal:
                self._waiting.append(failure)
                return None
            if self._plan.several:
                names = ", ".join(self._done) or "nothing"
                text = (
                    f"changed before that: {names}; apply the file again when this is put right, it goes on from there"
                )
                failure.violations = (*failure.violations, Violation("", text))
            raise failure from error
        if result is not None:
            self._done.append(what)
        return result

    def _change_cluster(self, step: ClusterStep, *, validate_only: bool = False) -> admin.Cluster:
        common = {
            "allow_unreachable": self._options.allow_unreachable,
            "validate_only": validate_only,
            "request_id": str(uuid.uuid4()),
            "reason": self._options.reason,
        }
        clusters = self._connection.clusters
        if step.action is Action.CREATE:
            register = admin.RegisterClusterRequest(spec=step.spec, **common)  # type: ignore[arg-type]
            return self._connection.call(clusters.RegisterCluster, register)
        update = admin.UpdateClusterRequest(
            name=f"clusters/{step.spec.cluster_name}",
            spec=step.spec,
            update_mask=FieldMask(paths=step.fields),
            expected_revision=step.revision,
            **common,  # type: ignore[arg-type]
        )
        return self._connection.call(clusters.UpdateCluster, update)

    def _remove_cluster(self, step: ClusterStep) -> admin.RemoveClusterResponse:
        request = admin.RemoveClusterRequest(
            name=f"clusters/{step.spec.cluster_name}",
            expected_revision=step.revision,
            request_id=str(uuid.uuid4()),
            reason=self._options.reason,
        )
        return self._connection.call(self._connection.clusters.RemoveCluster, request)

    def _change_rules(self) -> admin.RuleChangeResponse | None:
        """All rules in one step, provided that nobody else changed them since the plan was made. None: nothing to
        ask.
        """
        plan, options = self._plan, self._options
        if not plan.changes_rules or (options.dry_run and plan.needs_new_clusters):
            return None
        request = admin.ReplaceRulesRequest(
            rules=plan.rule_set,
            options=admin.ChangeOptions(
                expected_revision=plan.rules_revision,
                validate_only=options.dry_run,
                request_id=str(uuid.uuid4()),
                reason=options.reason,
                create_missing_topics=options.create_topics,
                accept_skip=options.accept_skip,
                allow_shadowed=options.allow_shadowed,
                allow_unreachable=options.allow_unreachable,
                without_members=options.without,
                wait_for=admin.WAIT_FOR_ALL_MEMBERS if options.wait else admin.WAIT_FOR_UNSPECIFIED,
            ),
        )
        return self._connection.call(self._connection.rules.ReplaceRules, request)

    def _change_record_rule(self, step: RecordRuleStep, *, validate_only: bool = False) -> record_rules.RecordRule:
        calls, options = self._connection.record_rules, self._record_options(step)
        options.validate_only = validate_only
        if step.action is Action.CREATE:
            create = record_rules.CreateRecordRuleRequest(record_rule=step.spec, options=options)
            return self._connection.call(calls.CreateRecordRule, create)
        name = f"recordrules/{step.spec.record_rule_id}"
        update = record_rules.UpdateRecordRuleRequest(name=name, record_rule=step.spec, options=options)
        return self._connection.call(calls.UpdateRecordRule, update)

    def _remove_record_rule(self, step: RecordRuleStep) -> record_rules.RemoveRecordRuleResponse:
        name = f"recordrules/{step.spec.record_rule_id}"
        request = record_rules.RemoveRecordRuleRequest(name=name, options=self._record_options(step))
        return self._connection.call(self._connection.record_rules.RemoveRecordRule, request)

    def _tenants(self) -> list[Sequence[tenants.TenantChange]]:
        """The changes of tenants, as many as one call takes together."""
        found = self._plan.tenant_changes
        return [found[start : start + TENANTS_AT_ONCE] for start in range(0, len(found), TENANTS_AT_ONCE)]

    def _change_tenants(
        self, changes: Sequence[tenants.TenantChange], *, validate_only: bool = False
    ) -> tenants.ChangeTenantsResponse:
        request = tenants.ChangeTenantsRequest(
            changes=changes,
            reason=self._options.reason,
            request_id=str(uuid.uuid4()),
            validate_only=validate_only,
        )
        return self._connection.call(self._connection.tenants.ChangeTenants, request)

    def _acls(self, action: Action) -> list[Sequence[acls.Acl]]:
        """The ACLs of this action, as many as one call takes together."""
        found = self._plan.acls.of(action)
        return [found[start : start + ACLS_AT_ONCE] for start in range(0, len(found), ACLS_AT_ONCE)]

    def _change_acls(self, applied: Applied) -> None:
        """ACLs that come, the mode, then ACLs that go: no client loses for a moment what it may keep."""
        for some in self._acls(Action.CREATE):
            added = self._do("acls", partial(self._add_acls, some))
            applied.acls_added += len(added.created) if added is not None else 0
        self._check_nothing_waits()
        if self._plan.acls.changes_policy:
            self._do("acl_policy", self._set_acl_policy)
        self._check_nothing_waits()
        for some in self._acls(Action.REMOVE):
            removed = self._do("acls", partial(self._remove_acls, some))
            applied.acls_removed += len(removed.deleted) if removed is not None else 0

    def _add_acls(self, wanted: Sequence[acls.Acl], *, validate_only: bool = False) -> acls.CreateAclsResponse:
        request = acls.CreateAclsRequest(
            acls=wanted, validate_only=validate_only, reason=self._options.reason, request_id=str(uuid.uuid4())
        )
        return self._connection.call(self._connection.acls.CreateAcls, request)

    def _remove_acls(self, wanted: Sequence[acls.Acl]) -> acls.DeleteAclsResponse:
        request = acls.DeleteAclsRequest(
            filters=[acls.AclFilter.FromString(each.SerializeToString()) for each in wanted],
            reason=self._options.reason,
            request_id=str(uuid.uuid4()),
        )
        return self._connection.call(self._connection.acls.DeleteAcls, request)

    def _set_acl_policy(self, *, validate_only: bool = False) -> acls.SetAclModeResponse:
        """The check comes before the ACLs of the file: whether these lock everybody out is known from the plan."""
        step = self._plan.acls.policy
        assert step is not None, "the plan changes the policy"
        request = acls.SetAclModeRequest(
            mode=step.mode, super_users=acls.AclSuperUsers(principals=step.super_users), validate_only=validate_only,
            force=validate_only, reason=self._options.reason, request_id=str(uuid.uuid4()),
        )  # fmt: skip
        return self._connection.call(self._connection.acls.SetAclMode, request)

    def _record_options(self, step: RecordRuleStep) -> record_rules.RecordRuleOptions:
        return record_rules.RecordRuleOptions(
            expected_revision=step.revision,
            request_id=str(uuid.uuid4()),
            reason=self._options.reason,
            allow_unreachable=self._options.allow_unreachable,
        )


def clusters_of(spec: record_rules.RecordRuleSpec) -> frozenset[str]:
    """Clusters that a record rule reads from or writes to."""
    if spec.WhichOneof("kind") == "mirror":
        return frozenset({spec.mirror.source_cluster, spec.mirror.target_cluster})
    content = spec.content
    targets = [each.target.cluster for each in content.branches]
    targets += [content.otherwise.cluster, content.dead_letters.cluster]
    return frozenset({content.source_cluster, *filter(None, targets)})
