"""The contracts of proto/mesh/v1 as Python modules. Everyone imports the generated stubs from here.

Each file of the contracts has a module of messages with its name, as `acls` for `acls.proto`. A module with `_grpc`
behind that name has the stubs and servicers.
"""

from mesh.rpc.v1 import access_pb2 as access
from mesh.rpc.v1 import acknowledgements_pb2 as acknowledgements
from mesh.rpc.v1 import acls_pb2 as acls
from mesh.rpc.v1 import acls_pb2_grpc as acls_grpc
from mesh.rpc.v1 import admin_pb2 as admin
from mesh.rpc.v1 import admin_pb2_grpc as admin_grpc
from mesh.rpc.v1 import audit_pb2 as audit
from mesh.rpc.v1 import audit_pb2_grpc as audit_grpc
from mesh.rpc.v1 import clients_pb2 as clients
from mesh.rpc.v1 import clients_pb2_grpc as clients_grpc
from mesh.rpc.v1 import discovery_pb2 as discovery
from mesh.rpc.v1 import discovery_pb2_grpc as discovery_grpc
from mesh.rpc.v1 import drains_pb2 as drains
from mesh.rpc.v1 import drains_pb2_grpc as drains_grpc
from mesh.rpc.v1 import events_pb2 as events
from mesh.rpc.v1 import fail_backs_pb2 as fail_backs
from mesh.rpc.v1 import fail_backs_pb2_grpc as fail_backs_grpc
from mesh.rpc.v1 import grants_pb2 as grants
from mesh.rpc.v1 import grants_pb2_grpc as grants_grpc
from mesh.rpc.v1 import instances_pb2 as instances
from mesh.rpc.v1 import instances_pb2_grpc as instances_grpc
from mesh.rpc.v1 import kafka_changes_pb2 as kafka_changes
from mesh.rpc.v1 import kafka_changes_pb2_grpc as kafka_changes_grpc
from mesh.rpc.v1 import lineage_pb2 as lineage
from mesh.rpc.v1 import lineage_pb2_grpc as lineage_grpc
from mesh.rpc.v1 import listeners_pb2 as listeners
from mesh.rpc.v1 import listeners_pb2_grpc as listeners_grpc
from mesh.rpc.v1 import move_certificates_pb2 as move_certificates
from mesh.rpc.v1 import move_certificates_pb2_grpc as move_certificates_grpc
from mesh.rpc.v1 import pipelines_pb2 as pipelines
from mesh.rpc.v1 import pipelines_pb2_grpc as pipelines_grpc
from mesh.rpc.v1 import profiles_pb2 as profiles
from mesh.rpc.v1 import profiles_pb2_grpc as profiles_grpc
from mesh.rpc.v1 import proposals_pb2 as proposals
from mesh.rpc.v1 import proposals_pb2_grpc as proposals_grpc
from mesh.rpc.v1 import protection_pb2 as protection
from mesh.rpc.v1 import protection_pb2_grpc as protection_grpc
from mesh.rpc.v1 import quotas_pb2 as quotas
from mesh.rpc.v1 import quotas_pb2_grpc as quotas_grpc
from mesh.rpc.v1 import record_rules_pb2 as record_rules
from mesh.rpc.v1 import record_rules_pb2_grpc as record_rules_grpc
from mesh.rpc.v1 import rehearsals_pb2 as rehearsals
from mesh.rpc.v1 import rehearsals_pb2_grpc as rehearsals_grpc
from mesh.rpc.v1 import replays_pb2 as replays
from mesh.rpc.v1 import replays_pb2_grpc as replays_grpc
from mesh.rpc.v1 import reports_pb2 as reports
from mesh.rpc.v1 import routing_pb2 as routing
from mesh.rpc.v1 import snapshots_pb2 as snapshots
from mesh.rpc.v1 import standbys_pb2 as standbys
from mesh.rpc.v1 import standbys_pb2_grpc as standbys_grpc
from mesh.rpc.v1 import stitches_pb2 as stitches
from mesh.rpc.v1 import subscriptions_pb2 as subscriptions
from mesh.rpc.v1 import subscriptions_pb2_grpc as subscriptions_grpc
from mesh.rpc.v1 import tenants_pb2 as tenants
from mesh.rpc.v1 import tenants_pb2_grpc as tenants_grpc
from mesh.rpc.v1 import topic_moves_pb2 as topic_moves
from mesh.rpc.v1 import topic_moves_pb2_grpc as topic_moves_grpc
from mesh.rpc.v1 import topics_pb2 as topics
from mesh.rpc.v1 import topics_pb2_grpc as topics_grpc
from mesh.rpc.v1 import traffic_pb2 as traffic
from mesh.rpc.v1 import traffic_pb2_grpc as traffic_grpc
from mesh.rpc.v1 import transactions_pb2 as transactions
from mesh.rpc.v1 import transactions_pb2_grpc as transactions_grpc
from mesh.rpc.v1 import users_pb2 as users
from mesh.rpc.v1 import users_pb2_grpc as users_grpc
from mesh.rpc.v1 import validation_pb2 as validation
from mesh.rpc.v1 import validation_pb2_grpc as validation_grpc

__all__ = [
    "access",
    "acknowledgements",
    "acls",
    "acls_grpc",
    "admin",
    "admin_grpc",
    "audit",
    "audit_grpc",
    "clients",
    "clients_grpc",
    "discovery",
    "discovery_grpc",
    "drains",
    "drains_grpc",
    "events",
    "fail_backs",
    "fail_backs_grpc",
    "grants",
    "grants_grpc",
    "instances",
    "instances_grpc",
    "kafka_changes",
    "kafka_changes_grpc",
    "lineage",
    "lineage_grpc",
    "listeners",
    "listeners_grpc",
    "move_certificates",
    "move_certificates_grpc",
    "pipelines",
    "pipelines_grpc",
    "profiles",
    "profiles_grpc",
    "proposals",
    "proposals_grpc",
    "protection",
    "protection_grpc",
    "quotas",
    "quotas_grpc",
    "record_rules",
    "record_rules_grpc",
    "rehearsals",
    "rehearsals_grpc",
    "replays",
    "replays_grpc",
    "reports",
    "routing",
    "snapshots",
    "standbys",
    "standbys_grpc",
    "stitches",
    "subscriptions",
    "subscriptions_grpc",
    "tenants",
    "tenants_grpc",
    "topic_moves",
    "topic_moves_grpc",
    "topics",
    "topics_grpc",
    "traffic",
    "traffic_grpc",
    "transactions",
    "transactions_grpc",
    "users",
    "users_grpc",
    "validation",
    "validation_grpc",
]
