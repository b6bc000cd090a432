"""The state of control: a value that follows from the events of the log, one by one, and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from mesh.instance_names import INSTANCES
from mesh.record_rules import STREAM_PREFIX, RecordRules, fold_record_rules
from mesh.routing import Folding, RoutingState, fold, is_pending
from mesh.rpc import events
from services.control.domain.access.grants import ACCESS, Grants, fold_grants
from services.control.domain.acls.acls import ACLS
from services.control.domain.change_control.approvals import APPROVALS
from services.control.domain.change_control.freezing import FREEZE_STREAM
from services.control.domain.change_control.proposals import PROPOSALS, Proposals, fold_proposals
from services.control.domain.change_control.schedules import SCHEDULES
from services.control.domain.drains.drains import DRAINS, Drains, fold_drains
from services.control.domain.fail_backs.fail_backs import FAIL_BACKS, FailBacks, fold_fail_backs
from services.control.domain.listeners.listeners import LISTENERS
from services.control.domain.protection.rules import PROTECTION
from services.control.domain.quotas.quotas import QUOTAS
from services.control.domain.records.rule_set import RecordRuleSet
from services.control.domain.rehearsals.rehearsals import REHEARSALS
from services.control.domain.replays.profiles import Profiles, fold_profiles
from services.control.domain.replays.replays import REPLAYS, Replays, fold_replays
from services.control.domain.rules.rule_set import RuleSet
from services.control.domain.sidecars.commands import SIDECARS
from services.control.domain.sidecars.orders import Orders, fold_orders
from services.control.domain.sidecars.subscriptions import SUBSCRIPTIONS, Declared, fold_subscriptions
from services.control.domain.standbys.standbys import STANDBYS, Standbys, fold_standbys
from services.control.domain.stitches.logs import STITCHES
from services.control.domain.tenants.tenants import TENANTS
from services.control.domain.topic_moves.moves import TOPIC_MOVES, TopicMoves, fold_topic_moves
from services.control.domain.topics.owners import OWNERS, Owners, fold_owners
from services.control.domain.transactions.transactions import TRANSACTIONS
from services.control.domain.users.users import USERS, Users, fold_users
from services.control.domain.validation.rules import VALIDATION

RULES_STREAM = "rules"
FIRST_ORDINAL = 1
POLICIES = (ACLS, LISTENERS, PROTECTION, QUOTAS, REHEARSALS, STITCHES, TENANTS, VALIDATION)
"""The streams of the policies that tables carry."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The last event that changed a rule: its revision, its actor, and its time."""

    revision: int
    actor: str
    time: datetime


@dataclass(frozen=True, slots=True)
class MeshView:
    """The mesh after `position`. It costs little memory: a new view shares all unchanged parts with the view before."""

    state: RoutingState = field(default_factory=RoutingState)
    cluster_revisions: Mapping[str, int] = field(default_factory=dict)
    rule_origins: Mapping[str, Origin] = field(default_factory=dict)
    rules_revision: int = 0
    """Position of the last RuleSetChanged in force; callers compare it with the revision that they expect."""
    routing_position: int = 0
    """Position of the last event about clusters, rules or rollouts."""
    next_ordinal: int = FIRST_ORDINAL
    """An ordinal above all that clusters have ever had: control does not use an ordinal again."""
    orders: Orders = field(default_factory=Orders)
    """The orders for sidecars and pipelines."""
    replays: Replays = field(default_factory=Replays)
    """The open replays, and the last ended ones."""
    profiles: Profiles = field(default_factory=dict)
    """The last profile of each topic's records."""
    record_rules: RecordRules = field(default_factory=dict)
    """Also the copies of open moves."""
    topic_moves: TopicMoves = field(default_factory=TopicMoves)
    """The open moves of topics with their records, and the last ended ones."""
    drains: Drains = field(default_factory=Drains)
    """The open drains of clusters, and the last ended ones."""
    standbys: Standbys = field(default_factory=dict)
    """The standbys of clusters, by name."""
    fail_backs: FailBacks = field(default_factory=dict)
    """The last fail-back of each cluster, by name."""
    rollout: events.Event | None = None
    """The RuleSetChanged that is being rolled out."""
    frozen: events.Event | None = None
    """The MeshFrozen event while control refuses changes."""
    schedules: Mapping[str, events.Event] = field(default_factory=dict)
    """schedules/{id} -> the ChangeScheduled event of a change that is still to come."""
    grants: Grants = field(default_factory=dict)
    users: Users = field(default_factory=Users)
    subscriptions: Declared = field(default_factory=dict)
    """The subscriptions of sidecars that operators have declared."""
    proposals: Proposals = field(default_factory=Proposals)
    """The policy of approvals, and the changes that wait for a second person."""
    owners: Owners = field(default_factory=dict)

    @property
    def position(self) -> int:
        return self.state.position

    @property
    def rule_set(self) -> RuleSet:
        return RuleSet(self.state.effective, self.rules_revision)

    @property
    def record_rule_set(self) -> RecordRuleSet:
        rules = {each.rule_id: each for each in self.record_rules.values() if not each.is_copy}
        return RecordRuleSet(rules, self.state.effective.clusters)

    def users_of(self, cluster: str) -> list[str]:
        """Ids of the record rules that use a cluster, and of the copies of open moves."""
        return RecordRuleSet(self.record_rules, ()).users_of(cluster)


def apply(view: MeshView, event: events.Event) -> MeshView:
    """The view after `event`; an event that the view has seen changes nothing, a gap raises LogGapError."""
    if event.position <= view.position:
        return view
    state = fold(view.state, event)
    return replace(_beside_routing(view, event), state=state)


class ViewFolding:
    """A view that follows many events: as `apply`, but without a routing table after each event (`Folding`)."""

    def __init__(self, view: MeshView) -> None:
        self._beside = view
        self._routing = Folding(view.state)

    @property
    def view(self) -> MeshView:
        """The view now."""
        if self._beside.state is not self._routing.state:
            self._beside = replace(self._beside, state=self._routing.state)
        return self._beside

    @property
    def position(self) -> int:
        return self._routing.position

    @property
    def rules_revision(self) -> int:
        return self._beside.rules_revision

    @property
    def rollout(self) -> events.Event | None:
        return self._beside.rollout

    def fold(self, event: events.Event) -> None:
        """Takes an event, as `apply` does."""
        if event.position > self.position:
            self._routing.fold(event)
            self._beside = _beside_routing(self._beside, event)


def _beside_routing(view: MeshView, event: events.Event) -> MeshView:
    """The view after `event`, without the change of the routing state."""
    after = replace(
        view,
        routing_position=event.position if _about_routing(event) else view.routing_position,
        record_rules=fold_record_rules(view.record_rules, event),
        orders=fold_orders(view.orders, event),
        replays=fold_replays(view.replays, event, view.orders),
        topic_moves=fold_topic_moves(view.topic_moves, event),
        drains=fold_drains(view.drains, event),
        standbys=fold_standbys(view.standbys, event),
        fail_backs=fold_fail_backs(view.fail_backs, event),
        profiles=fold_profiles(view.profiles, event),
        grants=fold_grants(view.grants, event),
        users=fold_users(view.users, event),
        subscriptions=fold_subscriptions(view.subscriptions, event),
        proposals=fold_proposals(view.proposals, event),
        owners=fold_owners(view.owners, event),
    )
    match event.WhichOneof("payload"):
        case "cluster_registered":
            cluster = event.cluster_registered.cluster
            revisions = {**view.cluster_revisions, cluster.spec.cluster_name: event.position}
            ordinal = max(view.next_ordinal, cluster.ordinal + 1)
            return replace(after, cluster_revisions=revisions, next_ordinal=ordinal)
        case "cluster_updated":
            name = event.cluster_updated.cluster.spec.cluster_name
            return replace(after, cluster_revisions={**view.cluster_revisions, name: event.position})
        case "cluster_removed":
            gone = event.cluster_removed.cluster_name
            revisions = {name: at for name, at in view.cluster_revisions.items() if name != gone}
            return replace(after, cluster_revisions=revisions)
        case "rule_set_changed" if is_pending(event.rule_set_changed):
            return replace(after, rollout=event)
        case "rule_set_changed":
            return _with_rules_of(after, event)
        case "rollout_switched" if view.rollout and view.rollout.position == event.rollout_switched.revision:
            return replace(_with_rules_of(after, view.rollout), rollout=None)
        case "rollout_aborted" if view.rollout and view.rollout.position == event.rollout_aborted.revision:
            return replace(after, rollout=None)
        case "mesh_frozen":
            return replace(after, frozen=event)
        case "mesh_thawed":
            return replace(after, frozen=None)
        case "change_scheduled":
            return replace(after, schedules={**view.schedules, event.change_scheduled.name: event})
        case "scheduled_change_ended":
            coming = {n: e for n, e in view.schedules.items() if n != event.scheduled_change_ended.name}
            return replace(after, schedules=coming)
        case _:
            return after


def _with_rules_of(view: MeshView, change: events.Event) -> MeshView:
    origins = dict(view.rule_origins)
    origin = Origin(change.position, change.actor, change.time.ToDatetime())
    for each in change.rule_set_changed.changes:
        match each.WhichOneof("kind"):
            case "created":
                origins[each.created.rule_id] = origin
            case "updated":
                origins[each.updated.rule_id] = origin
            case "moved":
                origins[each.moved] = origin
            case _:
                origins.pop(each.removed, None)
    return replace(view, rule_origins=origins, rules_revision=change.position)


def _about_routing(event: events.Event) -> bool:
    beside = (
        INSTANCES, SIDECARS, STREAM_PREFIX, SCHEDULES, FREEZE_STREAM, f"{REPLAYS}/", f"{TRANSACTIONS}/", f"{ACCESS}/",
        f"{USERS}/", f"{SUBSCRIPTIONS}/", *POLICIES, f"{TOPIC_MOVES}/", f"{DRAINS}/", f"{STANDBYS}/",
        f"{FAIL_BACKS}/", APPROVALS,
        f"{PROPOSALS}/", f"{OWNERS}/",
    )  # fmt: skip
    return not event.stream.startswith(beside)
