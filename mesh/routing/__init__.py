"""The routing domain: clusters, ordered rules, the numbered table, and how the table follows from events. No I/O."""

from mesh.routing.fold import LogGapError, RoutingState, fold
from mesh.routing.rules import (
    ExactTopic,
    ForwardingRule,
    InvalidRuleError,
    Match,
    RuleVersion,
    TopicPrefix,
    TopicRegex,
)
from mesh.routing.table import Route, RoutingTable, UpstreamCluster, may_move_topics

__all__ = [
    "ExactTopic",
    "ForwardingRule",
    "InvalidRuleError",
    "LogGapError",
    "Match",
    "Route",
    "RoutingState",
    "RoutingTable",
    "RuleVersion",
    "TopicPrefix",
    "TopicRegex",
    "UpstreamCluster",
    "fold",
    "may_move_topics",
]
