"""The most that a tenant may do with a resource, whatever ACLs allow.

A tenant does what it likes with what has its prefix, reads topics that are shared with it, and does nothing with the
cluster but produce with idempotence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Final

from mesh.acls import Operation, ResourceType
from mesh.acls.policy import EVERY_OPERATION
from mesh.tenants import Tenant

_READS: Final = reduce(or_, (each.bit for each in (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)))
_OF_EVERYTHING: Final[Mapping[ResourceType, int]] = {ResourceType.CLUSTER: Operation.IDEMPOTENT_WRITE.bit}
"""The operations with resources that have no prefix."""
_WITH_PREFIX: Final = frozenset({ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID})


def operations_within(tenant: Tenant, resource_type: ResourceType, name: str) -> int:
    """As bits. `name` is the full one."""
    if resource_type not in _WITH_PREFIX:
        return _OF_EVERYTHING.get(resource_type, 0)
    if resource_type is not ResourceType.TOPIC:
        return EVERY_OPERATION if name and tenant.own(name) is not None else 0
    writable = tenant.shared.get(name)
    if writable is not None:
        return _READS | Operation.WRITE.bit if writable else _READS
    return EVERY_OPERATION if name and tenant.own_topic(name) is not None else 0
