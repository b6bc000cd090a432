"""The plan of an applied file: a comparison of the file with the mesh as it is now, without I/O.

Clusters and record rules of the file are created or changed; those that the file does not name stay. Rules of the file
are set: an existing rule with the same match gets the file's values and keeps its place; new rules come last. With
`replace` the file's rules, in their order, are the whole set. With `prune` that holds for each section of the file:
entries that the section does not name are removed, except the home cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mesh.order import staying_in_order
from mesh.rpc import acls, admin, routing
from mesh.rpc import record_rules as records
from mesh.rpc import tenants as tenants_pb
from mesh.wording import decision_text, rule_text
from meshctl.endpoints import EndpointsError, split_address
from meshctl.meshfile import tenants as of_tenants
from meshctl.meshfile.acl_plan import NO_POLICY, AclPlan, acl_plan
from meshctl.meshfile.action import Action
from meshctl.meshfile.model import AddressEntry, FileError, Finding, MeshFile
from meshctl.meshfile.names import with_registered_names
from meshctl.meshfile.section import did_you_mean
from meshctl.record_rules import sentence as record_rule_text

SPEC_FIELDS = ("bootstrap_servers", "partition_count", "producer_config", "consumer_config")
_WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class ClusterStep:
    """The action on one cluster. `revision` is the expected revision of an update; `fields` are the changed fields."""

    action: Action
    spec: routing.ClusterSpec
    detail: str
    fields: tuple[str, ...] = ()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class RuleStep:
    """The action on one rule."""

    action: Action
    spec: routing.RuleSpec
    detail: str


@dataclass(frozen=True, slots=True)
class RecordRuleStep:
    """The action on one record rule. `revision` is the expected revision of a change."""

    action: Action
    spec: records.RecordRuleSpec
    detail: str
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps. `rule_set` is the whole list of rules as it will be, made from the one of `rules_revision`."""

    clusters: tuple[ClusterStep, ...]
    rules: tuple[RuleStep, ...]
    rule_set: tuple[routing.RuleSpec, ...]
    rules_revision: int
    notices: tuple[Finding, ...]
    record_rules: tuple[RecordRuleStep, ...] = ()
    acls: AclPlan = field(default_factory=AclPlan)
    tenants: tuple[of_tenants.TenantStep, ...] = ()

    @property
    def cluster_changes(self) -> tuple[ClusterStep, ...]:
        """Clusters to register or to update; they come first."""
        return tuple(step for step in self.clusters if step.action in (Action.CREATE, Action.UPDATE))

    @property
    def removed_clusters(self) -> tuple[ClusterStep, ...]:
        """They go last, when nothing leads to them any more."""
        return tuple(step for step in self.clusters if step.action is Action.REMOVE)

    @property
    def record_rule_changes(self) -> tuple[RecordRuleStep, ...]:
        return tuple(step for step in self.record_rules if step.action is not Action.UNCHANGED)

    @property
    def steps(self) -> tuple[tuple[Action, str, str, str], ...]:
        """Action, kind, name and detail of each step, in the order in which they are made."""
        made = [(step.action, "cluster", step.spec.cluster_name, step.detail) for step in self.clusters]
        rules = [(step.action, "rule", step.spec.rule_id or "(new)", step.detail) for step in self.rules]
        of_records = [(step.action, "record rule", step.spec.record_rule_id, step.detail) for step in self.record_rules]
        gone = [step for step in made if step[0] is Action.REMOVE]
        named = [(step.action, "tenant", step.tenant.tenant_id, step.detail) for step in self.tenants]
        made = [step for step in made if step[0] is not Action.REMOVE]
        return (*made, *rules, *of_records, *named, *self.acls.steps, *gone)

    @property
    def tenant_changes(self) -> list[tenants_pb.TenantChange]:
        """All in one call: a member may move from one tenant to another."""
        return [step.change for step in self.tenants if step.action is not Action.UNCHANGED]

    @property
    def several(self) -> bool:
        """Whether it takes more than one call to carry it out."""
        calls = len(self.cluster_changes) + len(self.record_rule_changes) + len(self.removed_clusters)
        of_acls = sum(action is not Action.UNCHANGED for action, *_ in self.acls.steps)
        return calls + self.changes_rules + of_acls + bool(self.tenant_changes) > 1

    @property
    def changes_nothing(self) -> bool:
        return all(action is Action.UNCHANGED for action, *_ in self.steps)

    @property
    def changes_rules(self) -> bool:
        return any(step.action is not Action.UNCHANGED for step in self.rules)

    @property
    def needs_new_clusters(self) -> bool:
        """True when a rule points to a cluster that this very plan registers."""
        return any(rule.target_cluster in self.new_clusters for rule in self.rule_set)

    @property
    def new_clusters(self) -> frozenset[str]:
        return frozenset(step.spec.cluster_name for step in self.clusters if step.action is Action.CREATE)


def make(
    file: MeshFile,
    *,
    clusters: Sequence[admin.Cluster],
    rules: Sequence[admin.Rule],
    rules_revision: int,
    members: Sequence[admin.Member],
    record_rules: Sequence[records.RecordRule] = (),
    policy: acls.AclPolicy = NO_POLICY,
    known_tenants: Sequence[tenants_pb.Tenant] = (),
    replace: bool = False,
    prune: bool = False,
) -> Plan:
    """The plan for `file`. Raises FileError when the file can't be applied to this mesh."""
    errors = _shared_addresses(file)
    if errors:
        raise FileError(errors)
    file = with_registered_names(file, clusters)
    known = {each.spec.cluster_name for each in clusters} | {each.spec.cluster_name for each in file.clusters}
    errors = _unknown_targets(file, known)
    replace = replace or (prune and file.rules is not None)
    if replace and file.rules is None:
        errors.append(
            Finding(1, "", "it has no rules, so --replace would remove them all; if you mean that: 'rules: []'")
        )
    of_acls, lockout = acl_plan(file, policy, prune=prune)
    errors += lockout
    if errors:
        raise FileError(errors)
    existing = [each.spec for each in rules]
    wanted = [entry.spec for entry in file.rules or ()]
    rule_set = _unmatched_last(_with_ids(wanted, existing) if replace else _merged(existing, wanted))
    return Plan(
        clusters=(
            *(_cluster_step(entry.spec, clusters) for entry in file.clusters),
            *(_pruned_clusters(file, clusters) if prune and file.names_clusters else ()),
        ),
        rules=tuple(_rule_steps(existing, rule_set, wanted, replace)),
        rule_set=tuple(rule_set),
        rules_revision=rules_revision,
        notices=(*file.notices, *_address_notices(file.addresses, members)),
        record_rules=tuple(_record_rule_steps(file, record_rules, prune)),
        acls=of_acls,
        tenants=tuple(of_tenants.steps(file.tenants, known_tenants, prune=prune)),
    )


def _unknown_targets(file: MeshFile, known: set[str]) -> list[Finding]:
    names = sorted(known)
    listed = f"known: {', '.join(names)}" if names else "no cluster is registered, and the file has none"
    return [
        Finding(
            entry.line,
            entry.place,
            f"target_cluster {entry.spec.target_cluster!r} is neither in the file nor registered ({listed})"
            + did_you_mean(entry.spec.target_cluster, names),
        )
        for entry in file.rules or ()
        if entry.spec.target_cluster and entry.spec.target_cluster not in known
    ]


def _shared_addresses(file: MeshFile) -> list[Finding]:
    """Two clusters at one address, by a slip in the file or in --bootstrap: a cluster has one name."""
    seen: dict[str, str] = {}
    errors: list[Finding] = []
    for entry in file.clusters:
        name = entry.spec.cluster_name
        for address in entry.spec.bootstrap_servers:
            other = seen.setdefault(address, name)
            if other != name:
                text = f"{address} is also an address of {other}; a cluster has one name"
                errors.append(Finding(entry.line, name, text))
    return errors


def _cluster_step(wanted: routing.ClusterSpec, clusters: Iterable[admin.Cluster]) -> ClusterStep:
    current = next((each for each in clusters if each.spec.cluster_name == wanted.cluster_name), None)
    addresses = ", ".join(wanted.bootstrap_servers)
    if current is None:
        return ClusterStep(Action.CREATE, wanted, addresses)
    changed = tuple(name for name in SPEC_FIELDS if getattr(current.spec, name) != getattr(wanted, name))
    if not changed:
        return ClusterStep(Action.UNCHANGED, wanted, addresses)
    detail = "; ".join(cluster_difference(name, current.spec, wanted) for name in changed)
    return ClusterStep(Action.UPDATE, wanted, detail, changed, current.revision)


def cluster_difference(name: str, current: routing.ClusterSpec, wanted: routing.ClusterSpec) -> str:
    """How a field of a cluster differs: "partition_count default -> 3"."""
    before, after = getattr(current, name), getattr(wanted, name)
    if name == "bootstrap_servers":
        return f"{name} {', '.join(before)} -> {', '.join(after)}"
    if name == "partition_count":
        return f"{name} {before or 'default'} -> {after or 'default'}"
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return f"{name} {', '.join(keys)}"  # names only: a value may be a secret


def _pruned_clusters(file: MeshFile, clusters: Iterable[admin.Cluster]) -> Iterable[ClusterStep]:
    named = {entry.spec.cluster_name for entry in file.clusters}
    for each in clusters:
        if each.spec.cluster_name not in named and not each.home:
            addresses = ", ".join(each.spec.bootstrap_servers)
            yield ClusterStep(Action.REMOVE, each.spec, addresses, revision=each.revision)


def _record_rule_steps(file: MeshFile, known: Sequence[records.RecordRule], prune: bool) -> Iterable[RecordRuleStep]:
    by_id = {each.spec.record_rule_id: each for each in known}
    for entry in file.record_rules or ():
        current = by_id.pop(entry.spec.record_rule_id, None)
        text = record_rule_text(entry.spec)
        if current is None:
            yield RecordRuleStep(Action.CREATE, entry.spec, text)
        elif current.spec == entry.spec:
            yield RecordRuleStep(Action.UNCHANGED, entry.spec, text, current.revision)
        else:
            was = record_rule_text(current.spec)
            detail = f"{text} (was {was})" if was != text else f"{text} (other details)"
            yield RecordRuleStep(Action.UPDATE, entry.spec, detail, current.revision)
    if prune and file.record_rules is not None:
        for each in by_id.values():
            yield RecordRuleStep(Action.REMOVE, each.spec, record_rule_text(each.spec), each.revision)


def _key(spec: routing.RuleSpec) -> bytes:
    """The identity of a rule: its whole match, including the clients that the rule is about."""
    return spec.match.SerializeToString(deterministic=True)


def _unmatched_last(rules: list[routing.RuleSpec]) -> list[routing.RuleSpec]:
    """The default cluster is tried last, wherever it stands."""
    return sorted(rules, key=lambda each: each.match.WhichOneof("kind") == "unmatched_topics")


def _spec(rule_id: str, of: routing.RuleSpec) -> routing.RuleSpec:
    """The rule under another id; an empty one compares what rules say."""
    spec = routing.RuleSpec()
    spec.CopyFrom(of)
    spec.rule_id = rule_id
    return spec


def _with_ids(wanted: list[routing.RuleSpec], existing: list[routing.RuleSpec]) -> list[routing.RuleSpec]:
    """The wanted rules; a rule whose match exists already keeps its id."""
    ids = {_key(each): each.rule_id for each in existing}
    return [_spec(ids.get(_key(each), each.rule_id), each) for each in wanted]


def _merged(existing: list[routing.RuleSpec], wanted: list[routing.RuleSpec]) -> list[routing.RuleSpec]:
    """The existing rules, those that are wanted as they are wanted, then the wanted rules that are new."""
    by_key = {_key(each): each for each in wanted}
    kept = [_spec(each.rule_id, by_key.get(_key(each), each)) for each in existing]
    there = {_key(each) for each in existing}
    return kept + [each for each in wanted if _key(each) not in there]


def _rule_steps(
    existing: list[routing.RuleSpec], rule_set: list[routing.RuleSpec], wanted: list[routing.RuleSpec], replace: bool
) -> list[RuleStep]:
    before = {_key(each): (float(place), each) for place, each in enumerate(existing)}
    keys = [_key(each) for each in rule_set]
    after = {*keys}
    stays = staying_in_order([before[key][0] if key in before else None for key in keys])
    in_file = {_key(each) for each in wanted}
    steps: list[RuleStep] = []
    for spec, key, stayed in zip(rule_set, keys, stays, strict=True):
        if key not in in_file:
            continue  # without --replace: a rule that the file says nothing about
        _, current = before.get(key, (0.0, None))
        if current is None:
            steps.append(RuleStep(Action.CREATE, spec, rule_text(spec)))
        elif _spec("", current) != _spec("", spec):
            steps.append(RuleStep(Action.UPDATE, spec, f"{rule_text(spec)} (was {decision_text(current)})"))
        elif replace and not stayed:
            steps.append(RuleStep(Action.MOVE, spec, f"{rule_text(spec)} (another place in the order)"))
        else:
            steps.append(RuleStep(Action.UNCHANGED, spec, rule_text(spec)))
    removed = [each for key, (_, each) in before.items() if key not in after]
    return steps + [RuleStep(Action.REMOVE, spec, rule_text(spec)) for spec in removed]


def _address_notices(addresses: Iterable[AddressEntry], members: Iterable[admin.Member]) -> list[Finding]:
    serving = sorted({each.address for each in members if each.kind == admin.MEMBER_KIND_GATEWAY and each.address})
    notices: list[Finding] = []
    for entry in addresses:
        if not serving:
            text = "no gateway is connected, so it can't be compared; clients connect where the gateway listens"
            notices.append(Finding(entry.line, f"{entry.what} {entry.address}", text))
        elif not any(_same(entry.address, address) for address in serving):
            text = f"differs from the running gateway's, which stays: clients connect to {', '.join(serving)}"
            notices.append(Finding(entry.line, f"{entry.what} {entry.address}", text))
    return notices


def _same(one: str, other: str) -> bool:
    try:
        (one_host, one_port), (other_host, other_port) = split_address(one), split_address(other)
    except EndpointsError:
        return one == other
    if one_port != other_port:
        return False
    hosts = {"127.0.0.1" if host in ("localhost", "::1") else host for host in (one_host, other_host)}
    return len(hosts) == 1 or bool(hosts & _WILDCARD_HOSTS)
