"""The routing domain: clusters, ordered rules, the numbered table, and how the table follows from events. No I/O."""

from mesh.routing.canary import Canary, takes_part
from mesh.routing.clients import ANONYMOUS, ClientIdentity, ClientMatch
from mesh.routing.clusters import FIRST_CLUSTER_NODE_ID, UpstreamCluster
from mesh.routing.errors import InvalidRuleError
from mesh.routing.fold import Folding, LogGapError, RoutingState, came_into_force, fold, is_pending
from mesh.routing.identity import Credential, IdentityFallback, IdentityMode, UpstreamIdentity
from mesh.routing.moving import may_move_topics
from mesh.routing.rules import (
    MAX_NAME,
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
from mesh.routing.table import Route, RoutingTable
from mesh.routing.visits import Past, Place, Stay

__all__ = [
    "ANONYMOUS",
    "FIRST_CLUSTER_NODE_ID",
    "MAX_NAME",
    "Canary",
    "ClientIdentity",
    "ClientMatch",
    "Credential",
    "ExactName",
    "Folding",
    "ForwardingRule",
    "IdentityFallback",
    "IdentityMode",
    "InvalidRuleError",
    "LogGapError",
    "Match",
    "NamePrefix",
    "NameRegex",
    "NodeView",
    "Past",
    "Place",
    "Route",
    "RoutingState",
    "RoutingTable",
    "RuleVersion",
    "Stay",
    "Subject",
    "UnmatchedTopics",
    "UpstreamCluster",
    "UpstreamIdentity",
    "came_into_force",
    "field_of",
    "fold",
    "is_pending",
    "may_move_topics",
    "takes_part",
]
