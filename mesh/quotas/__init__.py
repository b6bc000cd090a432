"""Quotas of clients, found and measured without I/O as Kafka's brokers find and measure them.

Control explains quotas by this core, and gateways throttle by it.
"""

from mesh.quotas.entity import DEFAULT, Entity, Key, Quota
from mesh.quotas.policy import Limit, Policy
from mesh.quotas.rate import Rate

__all__ = ["DEFAULT", "Entity", "Key", "Limit", "Policy", "Quota", "Rate"]
