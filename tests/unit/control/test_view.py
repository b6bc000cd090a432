"""The view follows from the events alone."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from mesh.routing import LogGapError
from mesh.rpc import events, routing
from services.control.domain.rules.ranks import STEP
from services.control.domain.view import MeshView, apply
from services.control.store.drafts import PAYLOADS
from services.control.store.reports import FIELDS


def event(position: int, stream: str, payload: Message, actor: str = "ada") -> events.Event:
    made = events.Event(position=position, stream=stream, stream_version=position, actor=actor)
    getattr(made, {**PAYLOADS, **FIELDS}[type(payload)]).CopyFrom(payload)
    return made


def registered(position: int, name: str, ordinal: int) -> events.Event:
    spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=[f"{name}:9092"])
    payload = events.ClusterRegistered(cluster=routing.UpstreamCluster(spec=spec, ordinal=ordinal))
    return event(position, f"clusters/{name}", payload)


def set_apples(position: int, target: str, *, kind: str, held: bool) -> events.Event:
    rule = routing.RuleSpec(rule_id="apples", match=routing.RuleMatch(topic="apples"), target_cluster=target)
    change = events.RuleChange(created=rule, rank=STEP) if kind == "created" else events.RuleChange(updated=rule)
    return event(position, "rules", events.RuleSetChanged(changes=[change], needs_hold=held), actor=f"by-{target}")


def seen(*log: events.Event) -> MeshView:
    view = MeshView()
    for each in log:
        view = apply(view, each)
    return view


BASE = (registered(1, "c1", 1), registered(2, "c2", 2), set_apples(3, "c1", kind="created", held=False))


def test_ordinals_are_never_given_again() -> None:
    view = seen(*BASE[:2], event(3, "clusters/c2", events.ClusterRemoved(cluster_name="c2")))
    assert view.next_ordinal == 3
    assert list(view.cluster_revisions) == ["c1"]


def test_a_held_change_counts_from_its_switch_on() -> None:
    pending = seen(*BASE, set_apples(4, "c2", kind="updated", held=True))
    assert (pending.rules_revision, pending.rule_origins["apples"].actor) == (3, "by-c1")
    assert pending.rollout is not None
    switched = apply(pending, event(5, "rules", events.RolloutSwitched(revision=4)))
    assert (switched.rules_revision, switched.rule_origins["apples"].actor) == (4, "by-c2")
    assert switched.rollout is None
    assert switched.state.effective.cluster_of("apples") == "c2"


def test_an_aborted_change_leaves_everything_as_it_was() -> None:
    aborted = seen(
        *BASE, set_apples(4, "c2", kind="updated", held=True), event(5, "rules", events.RolloutAborted(revision=4))
    )
    assert (aborted.rules_revision, aborted.rollout) == (3, None)
    assert aborted.state.effective.cluster_of("apples") == "c1"


def test_events_seen_before_change_nothing_and_gaps_are_refused() -> None:
    view = seen(*BASE)
    assert apply(view, BASE[1]) is view
    with pytest.raises(LogGapError):
        apply(view, registered(9, "c9", 9))


def test_instances_in_logs_of_earlier_releases_come_and_go_without_touching_what_routing_rests_on() -> None:
    instance = events.ConsumerInstance(name="instances/g.i", group="g", instance_id="i", sidecar="s")
    name = "instances/g.i"
    order = events.SidecarOrder(name="orders/1", target="members/s", sidecar="s")
    there = apply(seen(*BASE), event(4, name, events.ConsumerInstanceRegistered(instance=instance)))
    told = apply(there, event(5, "members/s", events.SidecarOrdered(order=order)))
    gone = apply(told, event(6, name, events.ConsumerInstanceRemoved(name=name)))
    assert gone.position == 6
    assert gone.routing_position == 3
