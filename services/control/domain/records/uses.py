"""Which record rules write or read a topic of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mesh.record_rules import RecordRule
from mesh.routing import Place
from mesh.rpc import record_rules
from services.control.domain.records.flows import ClusterTopics, Names, flow_of, target_names


def users_of_topic(place: Place, rules: Collection[RecordRule]) -> Iterator[tuple[str, str]]:
    """The mirrors and content rules that write or read a topic."""
    for rule in rules:
        uses = () if rule.is_copy else _uses(rule.spec)
        how = next(
            (how for how, there in uses if there.meets(ClusterTopics(place.cluster, Names(place.upstream_topic)))), ""
        )
        if how:
            yield rule.rule_id, how


def _uses(spec: record_rules.RecordRuleSpec) -> Iterator[tuple[str, ClusterTopics]]:
    yield "reads", flow_of(spec).source
    if spec.WhichOneof("kind") == "mirror":
        yield "writes", ClusterTopics(spec.mirror.target_cluster, target_names(spec.mirror))
    else:
        yield from (("writes", each) for each in flow_of(spec).targets)
