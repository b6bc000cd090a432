"""Tenants: clients that have a namespace of their own, by their principals. No I/O.

Control decides by it which tenants are possible, and gateways translate names by it.
"""

from mesh.tenants.policy import Policy
from mesh.tenants.tenant import Tenant, default_prefix

__all__ = ["Policy", "Tenant", "default_prefix"]
