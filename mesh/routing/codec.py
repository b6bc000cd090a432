"""Routing domain to protobuf and back.

A newer release may send a rule with a field that this release does not know. That field may narrow the rule to some
clients, so leaving the field out could widen the rule. Rules and tables with unknown fields are refused as a whole.
"""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from mesh.routing.clients import ANONYMOUS, ClientIdentity, ClientMatch
from mesh.routing.clusters import UpstreamCluster
from mesh.routing.errors import InvalidRuleError
from mesh.routing.identity import IdentityMode
from mesh.routing.identity_codec import identity_from_proto, identity_to_proto
from mesh.routing.policies import policies_by_kind
from mesh.routing.policy_codec import policies_from_proto
from mesh.routing.rules import (
    UNMATCHED_TOPICS,
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    NameRegex,
    NodeView,
    RuleVersion,
    Subject,
    UnmatchedTopics,
    field_of,
)
from mesh.routing.table import RoutingTable
from mesh.routing.visits import Past, Stay
from mesh.rpc import admin, routing

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

TABLE_FORMAT = 10
"""The format of tables that this release understands (Member.table_format)."""
TABLE_FORMAT_OF_IDENTITIES = 4
"""The first format with clients' identities at clusters."""
TABLE_FORMAT_OF_EXCHANGED_TOKENS = 5
"""The first format with tokens that are exchanged for those of a cluster."""
TABLE_FORMAT_OF_FORKS = 9
"""The first format with forks of topics: older gateways would delete records of the topics that they are from."""


def format_needed(table: RoutingTable) -> int:
    """The format that a reader has to understand, so that the reader ignores nothing of this table."""
    formats = [kind.table_format for kind, _ in policies_by_kind(table.policies)]
    for each in table.clusters.values():
        if each.identity is not None:
            exchanges = each.identity.mode is IdentityMode.EXCHANGE
            formats.append(TABLE_FORMAT_OF_EXCHANGED_TOKENS if exchanges else TABLE_FORMAT_OF_IDENTITIES)
    policy = table.policies.stitch_policy
    if policy is not None and any(log.fork_of for log in policy.logs):
        formats.append(TABLE_FORMAT_OF_FORKS)
    return max(formats, default=1 if table.conditions or table.pasts else 0)


def match_from_proto(message: routing.RuleMatch) -> Match:
    """The match; InvalidRuleError when none is set or it can't be."""
    check_known(message, "match")
    field = message.WhichOneof("kind")
    client = client_match_from_proto(message.client) if message.HasField("client") else None
    if field == UNMATCHED_TOPICS:
        if not message.unmatched_topics:
            raise InvalidRuleError("match.unmatched_topics", "is always true; set it, or set another kind of match")
        return UnmatchedTopics(client)
    if field not in _KINDS:
        known = ", ".join((*_KINDS, UNMATCHED_TOPICS))
        raise InvalidRuleError("match", f"a rule needs a match that is known here: one of {known}")
    kind, subject = _KINDS[field]
    return kind(getattr(message, field), subject, client)


def match_to_proto(match: Match) -> routing.RuleMatch:
    client = None if match.client is None else client_match_to_proto(match.client)
    message = routing.RuleMatch(client=client)
    kind = field_of(match).removeprefix("match.")
    setattr(message, kind, True if isinstance(match, UnmatchedTopics) else match.text)
    return message


def client_match_from_proto(message: routing.ClientMatch) -> ClientMatch:
    check_known(message, "match.client")
    return ClientMatch(
        message.principal,
        message.client_id,
        message.client_id_prefix,
        message.software_name,
        tuple(message.source_networks),
    )


def client_match_to_proto(client: ClientMatch) -> routing.ClientMatch:
    return routing.ClientMatch(
        principal=client.principal,
        client_id=client.client_id,
        client_id_prefix=client.client_id_prefix,
        software_name=client.software_name,
        source_networks=client.source_networks,
    )


def client_from_proto(message: admin.ClientIdentity) -> ClientIdentity:
    return ClientIdentity(
        message.principal or ANONYMOUS,
        message.client_id,
        message.software_name,
        message.software_version,
        message.address,
    )


def rule_from_proto(message: routing.RuleSpec) -> ForwardingRule:
    check_known(message, "rule")
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
        identity=identity_from_proto(message.identity) if message.HasField("identity") else None,
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
        identity=None if cluster.identity is None else identity_to_proto(cluster.identity),
    )


def table_from_proto(message: routing.RoutingTable) -> RoutingTable:
    """The table; InvalidRuleError when a rule can't be understood: a data plane then refuses it with the reason."""
    check_known(message, "table")
    return RoutingTable(
        message.revision,
        map(cluster_from_proto, message.clusters),
        map(version_from_proto, message.rule_versions),
        map(past_from_proto, message.pasts),
        policies_from_proto(message),
    )


def version_from_proto(message: routing.RuleVersion) -> RuleVersion:
    check_known(message, "version")
    try:
        rule = rule_from_proto(message.rule)
    except InvalidRuleError as error:
        raise InvalidRuleError(error.field_name, f"rule {message.rule.rule_id!r}: {error}") from None
    return RuleVersion(rule, message.rank, message.from_revision, message.until_revision or None)


def table_to_proto(table: RoutingTable) -> routing.RoutingTable:
    return routing.RoutingTable(
        revision=table.revision,
        clusters=map(cluster_to_proto, table.clusters.values()),
        rule_versions=map(version_to_proto, table.versions),
        pasts=map(past_to_proto, table.pasts),
        **table.policies._asdict(),
    )


def version_to_proto(version: RuleVersion) -> routing.RuleVersion:
    return routing.RuleVersion(
        rule=rule_to_proto(version.rule),
        rank=version.rank,
        from_revision=version.from_revision,
        until_revision=version.until_revision or 0,
    )


def past_from_proto(message: routing.TopicPast) -> Past:
    check_known(message, "past")
    return Past(match_from_proto(message.match), message.until_revision, tuple(map(_stay_from_proto, message.stays)))


def _stay_from_proto(message: routing.PastStay) -> Stay:
    check_known(message, "past")
    return Stay(message.cluster, message.visits, message.upstream_topic)


def past_to_proto(past: Past) -> routing.TopicPast:
    return routing.TopicPast(
        match=match_to_proto(past.match),
        until_revision=past.until_revision,
        stays=(
            routing.PastStay(cluster=stay.cluster, upstream_topic=stay.upstream_topic, visits=stay.visit)
            for stay in past.stays
        ),
    )


def check_known(message: Message, field_name: str) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        numbers = ", ".join(map(str, sorted({unknown[index].field_number for index in range(len(unknown))})))
        raise InvalidRuleError(
            field_name,
            f"field {numbers} of {message.DESCRIPTOR.name} is not known here: a newer release of the mesh says it; "
            "run that one here, too",
        )
