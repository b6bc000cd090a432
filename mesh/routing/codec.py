"""Routing domain to protobuf and back."""

from __future__ import annotations

from mesh.routing.rules import ExactTopic, ForwardingRule, InvalidRuleError, Match, RuleVersion, TopicPrefix, TopicRegex
from mesh.routing.table import RoutingTable, UpstreamCluster
from mesh.rpc import routing


def match_from_proto(message: routing.RuleMatch) -> Match:
    """The match; InvalidRuleError when none is set or it can't be."""
    match message.WhichOneof("kind"):
        case "topic":
            return ExactTopic(message.topic)
        case "topic_prefix":
            return TopicPrefix(message.topic_prefix)
        case "topic_regex":
            return TopicRegex(message.topic_regex)
        case _:
            raise InvalidRuleError("match", "a rule needs a match: one of topic, topic_prefix, topic_regex")


def match_to_proto(match: Match) -> routing.RuleMatch:
    match match:
        case ExactTopic(topic):
            return routing.RuleMatch(topic=topic)
        case TopicPrefix(prefix):
            return routing.RuleMatch(topic_prefix=prefix)
        case TopicRegex(pattern):
            return routing.RuleMatch(topic_regex=pattern)


def rule_from_proto(message: routing.RuleSpec) -> ForwardingRule:
    return ForwardingRule(message.rule_id, match_from_proto(message.match), message.target_cluster)


def rule_to_proto(rule: ForwardingRule) -> routing.RuleSpec:
    return routing.RuleSpec(rule_id=rule.rule_id, match=match_to_proto(rule.match), target_cluster=rule.target_cluster)


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
    versions = (
        RuleVersion(rule_from_proto(v.rule), v.rank, v.from_revision, v.until_revision or None)
        for v in message.rule_versions
    )
    return RoutingTable(message.revision, map(cluster_from_proto, message.clusters), versions)


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
