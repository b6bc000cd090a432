"""Logs for the router's tests, written as decisions: `log.cluster("c1")`, `log.rule("apples", to="c1")`, ..."""

from __future__ import annotations

import time
import uuid
from typing import Any

from mesh.routing import RoutingState, fold
from mesh.rpc import events, routing, topic_moves


class DecisionLog:
    """Builds events with gap-free positions, and folds them as it goes."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.state = RoutingState()

    def cluster(self, name: str, port: int = 9092) -> RoutingState:
        ordinal = sum(event.HasField("cluster_registered") for event in self.events)
        spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=[f"127.0.0.1:{port}"])
        cluster = routing.UpstreamCluster(spec=spec, ordinal=ordinal, home=ordinal == 0)
        return self._add(events.Event(cluster_registered=events.ClusterRegistered(cluster=cluster)))

    def rule(self, topic: str, *, to: str, hold: bool = False, client_id: str = "") -> RoutingState:
        """A new rule, for this client alone or for all; with `hold` it is pending until `switch` or `abort`."""
        created = events.RuleChange(created=_rule(topic, to), rank=float(len(self.events) + 1))
        if client_id:
            created.created.match.client.client_id = client_id
        return self._add(events.Event(rule_set_changed=events.RuleSetChanged(changes=[created], needs_hold=hold)))

    def tried(self, topic: str, *, to: str, by: tuple[str, ...] = (), permille: int = 100) -> RoutingState:
        """A new rule that these members (all of them) try first; pending until `switch` or `abort`."""
        created = events.RuleChange(created=_rule(topic, to), rank=float(len(self.events) + 1))
        canary = events.Canary(members=by, permille=permille)
        return self._add(events.Event(rule_set_changed=events.RuleSetChanged(changes=[created], canary=canary)))

    def move(self, topic: str, *, to: str) -> RoutingState:
        """A rule that is there gets another target; pending until `switch` or `abort`."""
        updated = events.RuleChange(updated=_rule(topic, to))
        return self._add(events.Event(rule_set_changed=events.RuleSetChanged(changes=[updated], needs_hold=True)))

    def remove(self, topic: str, *, hold: bool = False) -> RoutingState:
        """A rule goes; with `hold` it does at the `switch`."""
        removed = events.RuleChange(removed=topic)
        return self._add(events.Event(rule_set_changed=events.RuleSetChanged(changes=[removed], needs_hold=hold)))

    def cut(self, topic: str, *, source: str) -> RoutingState:
        """The pending move of a topic with its records has reached its cut."""
        producers = topic_moves.TopicMoveProducers(topic=topic, source_cluster=source, source_topic=topic)
        return self._add(events.Event(topic_move_cut_reached=events.TopicMoveCutReached(producers=producers)))

    def switch(self) -> RoutingState:
        return self._add(events.Event(rollout_switched=events.RolloutSwitched(revision=self._pending())))

    def abort(self) -> RoutingState:
        return self._add(events.Event(rollout_aborted=events.RolloutAborted(revision=self._pending(), cause="test")))

    def instance(self) -> RoutingState:
        """A decision that is not about routing."""
        instance = events.ConsumerInstance(name="instances/g.i")
        return self._add(
            events.Event(consumer_instance_registered=events.ConsumerInstanceRegistered(instance=instance))
        )

    def about_records(self, **payload: Any) -> RoutingState:
        """A decision about a record rule: `log.about_records(record_rule_paused=...)`."""
        return self._add(events.Event(actor="ann", **payload))

    def about_policies(self, event: events.Event) -> RoutingState:
        """A decision about ACLs or quotas."""
        return self._add(event)

    @property
    def last(self) -> events.Event:
        return self.events[-1]

    def _pending(self) -> int:
        assert self.state.pending is not None, "no rollout is going on"
        return self.state.pending.revision

    def _add(self, event: events.Event) -> RoutingState:
        event.position = len(self.events) + 1
        event.event_id = str(uuid.uuid4())
        event.time.FromNanoseconds(time.time_ns())
        self.events.append(event)
        self.state = fold(self.state, event)
        return self.state


def two_clusters() -> DecisionLog:
    """c1 and c2 are registered, apples live on c1. Position and revision are 3."""
    log = DecisionLog()
    log.cluster("c1")
    log.cluster("c2")
    log.rule("apples", to="c1")
    return log


def _rule(topic: str, target: str) -> routing.RuleSpec:
    return routing.RuleSpec(rule_id=topic, match=routing.RuleMatch(topic=topic), target_cluster=target)
