"""ACLs of clients, decided without I/O as Kafka's StandardAuthorizer decides.

Control explains decisions by this core, and gateways enforce them.
"""

from mesh.acls.acl import OPERATIONS_OF, Acl, Operation, PatternType, Permission, ResourceType
from mesh.acls.filters import AclFilter
from mesh.acls.policy import Decision, Policy
from mesh.acls.subjects import Subject

__all__ = [
    "OPERATIONS_OF",
    "Acl",
    "AclFilter",
    "Decision",
    "Operation",
    "PatternType",
    "Permission",
    "Policy",
    "ResourceType",
    "Subject",
]
