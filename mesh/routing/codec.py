"""Routing domain to protobuf and back."""

from __future__ import annotations

from mesh.routing.errors import InvalidRuleError
from mesh.routing.rules import (
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    NameRegex,
    NodeView,
    RuleVersion,
    Subject,
    field_of,
)
from mesh.routing.table import RoutingTable, UpstreamCluster
from mesh.rpc import routing

_KINDS: dict[str, tuple[type[ExactName | NamePrefix | NameRegex], Subject]] = {
    f"{subject.value}{kind.suffix}": (kind, subject)
    for subject in Subject
    for kind in (ExactName, NamePrefix, NameRegex)
}
_NODE_VIEWS = {
    routing.NODE_VIEW_UNSPECIFIED: NodeView.BY_SOFTWARE,
    routing.NODE_VIEW_SINGLE: NodeView.SINGLE,
    routing.NODE_VIEW_PER_CLUSTER: NodeView.PER_CLUSTER,
}
_NODE_VIEW_VALUES = {view: value for value, view in _NODE_VIEWS.items()}


def match_from_proto(message: routing.RuleMatch) -> Match:
    """The match; InvalidRuleError when none is set or it can't be."""
    field = message.WhichOneof("kind")
    if field is None:
        raise InvalidRuleError("match", f"a rule needs a match that is known here: one of {', '.join(_KINDS)}")
    kind, subject = _KINDS[field]
    return kind(getattr(message, field), subject)


def match_to_proto(match: Match) -> routing.RuleMatch:
    return routing.RuleMatch(**{field_of(match).removeprefix("match."): match.text})


def rule_from_proto(message: routing.RuleSpec) -> ForwardingRule:
    return ForwardingRule(
        message.rule_id,
        match_from_proto(message.match),
        message.target_cluster,
        upstream_topic=message.upstream_topic,
        shadow_topics=message.shadow_topics,
        span_clusters=message.span_clusters,
        node_view=node_view_from_proto(message.node_view),
    )


def rule_to_proto(rule: ForwardingRule) -> routing.RuleSpec:
    return routing.RuleSpec(
        rule_id=rule.rule_id,
        match=match_to_proto(rule.match),
        target_cluster=rule.target_cluster,
        upstream_topic=rule.upstream_topic,
        shadow_topics=rule.shadow_topics,
        span_clusters=rule.span_clusters,
        node_view=node_view_to_proto(rule.node_view),
    )


def node_view_from_proto(value: routing.NodeView.ValueType) -> NodeView:
    """The view; one that is not known here, of a newer mesh, counts as none."""
    return _NODE_VIEWS.get(value, NodeView.BY_SOFTWARE)


def node_view_to_proto(view: NodeView) -> routing.NodeView.ValueType:
    return _NODE_VIEW_VALUES[view]


def cluster_from_proto(message: routing.UpstreamCluster) -> UpstreamCluster:
    spec = message.spec
    return UpstreamCluster(
        name=spec.cluster_name,
        bootstrap_servers=tuple(spec.bootstrap_servers),
        ordinal=message.ordinal,
        partition_count=spec.partition_count,
        producer_config=dict(spec.producer_config),
        consumer_config=dict(spec.consumer_config),
        kafka_cluster_id=message.kafka_cluster_id,
        home=message.home,
    )


def cluster_to_proto(cluster: UpstreamCluster) -> routing.UpstreamCluster:
    return routing.UpstreamCluster(
        spec=routing.ClusterSpec(
            cluster_name=cluster.name,
            bootstrap_servers=cluster.bootstrap_servers,
            partition_count=cluster.partition_count,
            producer_config=cluster.producer_config,
            consumer_config=cluster.consumer_config,
        ),
        ordinal=cluster.ordinal,
        kafka_cluster_id=cluster.kafka_cluster_id,
        home=cluster.home,
    )


def table_from_proto(message: routing.RoutingTable) -> RoutingTable:
    """The table; InvalidRuleError when a rule can't be understood: a data plane then refuses it with the reason."""
    return RoutingTable(
        message.revision,
        map(cluster_from_proto, message.clusters),
        map(_version_from_proto, message.rule_versions),
    )


def _version_from_proto(message: routing.RuleVersion) -> RuleVersion:
    try:
        rule = rule_from_proto(message.rule)
    except InvalidRuleError as error:
        raise InvalidRuleError(error.field_name, f"rule {message.rule.rule_id!r}: {error}") from None
    return RuleVersion(rule, message.rank, message.from_revision, message.until_revision or None)


def table_to_proto(table: RoutingTable) -> routing.RoutingTable:
    return routing.RoutingTable(
        revision=table.revision,
        clusters=map(cluster_to_proto, table.clusters.values()),
        rule_versions=(
            routing.RuleVersion(
                rule=rule_to_proto(v.rule),
                rank=v.rank,
                from_revision=v.from_revision,
                until_revision=v.until_revision or 0,
            )
            for v in table.versions
        ),
    )
