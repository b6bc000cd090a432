"""Snapshots: which ones stay, and that a view outlives the way to bytes and back."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mesh.rpc import (
    access,
    acls,
    drains,
    events,
    fail_backs,
    grants,
    profiles,
    proposals,
    quotas,
    replays,
    routing,
    standbys,
    subscriptions,
    topic_moves,
)
from services.control.domain.past.snapshots import SnapshotError, view_from_bytes, view_to_bytes
from services.control.domain.view import MeshView, apply
from services.control.store.drafts import PAYLOADS
from services.control.store.reports import FIELDS
from services.control.store.snapshots import LATEST_KEPT, OLDER_KEPT, superfluous

EVERY = 1000


def kept_after(snapshots: int) -> list[int]:
    """Positions of the snapshots that are there when so many have been kept, one after the other."""
    kept: list[int] = []
    for number in range(1, snapshots + 1):
        kept.append(number * EVERY)
        gone = superfluous(kept)
        kept = [position for position in kept if position not in gone]
    return kept


def test_the_last_ones_stay_whatever_comes() -> None:
    assert kept_after(500)[-LATEST_KEPT:] == [498 * EVERY, 499 * EVERY, 500 * EVERY]


def test_a_million_events_leave_few_of_them_and_none_far_from_the_next() -> None:
    kept = kept_after(1000)
    assert len(kept) <= LATEST_KEPT + OLDER_KEPT
    distances = [after - before for before, after in zip([0, *kept], kept, strict=False)]
    assert max(distances) <= 2 * 1000 * EVERY // OLDER_KEPT + EVERY


def test_a_short_log_keeps_all() -> None:
    assert kept_after(5) == [1000, 2000, 3000, 4000, 5000]


ACL = acls.Acl(
    resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
    resource_name="apples",
    pattern_type=acls.ACL_PATTERN_TYPE_LITERAL,
    principal="User:shop",
    host="*",
    operation=acls.ACL_OPERATION_READ,
    permission=acls.ACL_PERMISSION_ALLOW,
)


QUOTA = quotas.QuotaChange(
    entity=quotas.QuotaEntity(user=quotas.QuotaName(name="shop")), key=quotas.QUOTA_KEY_PRODUCER_BYTE_RATE, value=1e6
)


def full_view() -> MeshView:
    """A view in which every field says something."""
    spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=["c1:9092"])
    rule = routing.RuleSpec(rule_id="apples", match=routing.RuleMatch(topic="apples"), target_cluster="c1")
    created = events.RuleChange(created=rule, rank=1.0)
    schedule = events.ChangeScheduled(name="schedules/night")
    record_rule = events.RecordRuleCreated()
    record_rule.rule.record_rule_id = "copies"
    instance = events.ConsumerInstance(name="instances/g.i", topics=["apples"])
    paused = events.SidecarOrder(name="orders/1", target="instances/g.i", sidecar="s1")
    asked = events.SidecarOrder(name="orders/2", target="members/s1", sidecar="s1")
    payloads = (
        events.ClusterRegistered(cluster=routing.UpstreamCluster(spec=spec, ordinal=1)),
        events.RuleSetChanged(changes=[created]),
        events.ConsumerInstanceRegistered(instance=instance),
        events.SidecarOrdered(order=paused),
        events.SidecarOrdered(order=asked),
        events.SidecarOrderEnded(name="orders/1", sidecar="s1"),
        events.ReplayStarted(replay=replays.Replay(name="replays/1", stopped=["instances/g.i"])),
        events.ReplayStarted(replay=replays.Replay(name="replays/2")),
        events.ReplayEnded(
            name="replays/2", state=replays.REPLAY_STATE_DONE, profiles=[profiles.TopicProfile(topic="apples")]
        ),
        record_rule,
        events.TopicMoveStarted(move=topic_moves.MoveWithRecords(name="topicmoves/1")),
        events.DrainStarted(drain=drains.Drain(name="drains/1")),
        events.StandbyStarted(standby=standbys.Standby(name="standbys/c1")),
        events.FailBackStarted(fail_back=fail_backs.FailBack(name="failbacks/c1")),
        schedule,
        events.RoleGranted(grant=grants.Grant(principal="ada", role=access.ROLE_VIEWER)),
        events.UserSet(name="shop"),
        events.AclsCreated(acls=[ACL]),
        events.QuotasChanged(changes=[QUOTA]),
        events.SubscriptionDeclared(subscription=subscriptions.DeclaredSubscription(name="orders")),
        events.ChangeProposed(proposal=proposals.Proposal(name="proposals/1")),
        events.TopicOwnerSet(topic="apples", owner="team-x"),
        events.MeshFrozen(),
        events.RuleSetChanged(changes=[events.RuleChange(removed="apples")], needs_hold=True),
    )
    view = MeshView()
    for position, payload in enumerate(payloads, 1):
        event = events.Event(position=position, stream="any", stream_version=position, actor="ada")
        event.time.FromSeconds(1_700_000_000 + position)
        getattr(event, {**PAYLOADS, **FIELDS}[type(payload)]).CopyFrom(payload)
        view = apply(view, event)
    return view


def test_every_field_of_a_view_comes_back() -> None:
    view = full_view()
    empty = [each.name for each in fields(MeshView) if getattr(view, each.name) == getattr(MeshView(), each.name)]
    assert empty == [], "let full_view fill this field too"
    assert view_from_bytes(view_to_bytes(view)) == view
    assert view.state.effective.policies.acl_policy is not None
    assert view.state.effective.policies.quota_policy is not None


@pytest.mark.parametrize("damage", [b"", b"nonsense", view_to_bytes(MeshView())[:-4]])
def test_bytes_that_are_no_view_say_so(damage: bytes) -> None:
    with pytest.raises(SnapshotError, match="not a view of format"):
        view_from_bytes(damage)
