"""Quotas in words."""

from __future__ import annotations

from mesh.quotas.codec import UnknownQuotaError, entity_from_proto, key_from_proto, quota_from_proto
from mesh.rpc import quotas

UNKNOWN = "a quota of a kind that this release does not know"


def quota_text(of: quotas.Quota) -> str:
    """ "producer_byte_rate of user 'alice' is 1000 bytes/s"."""
    try:
        return str(quota_from_proto(of))
    except UnknownQuotaError:
        return f"{UNKNOWN}, of {entity_from_proto(of.entity)}"


def change_text(of: quotas.QuotaChange) -> str:
    """The sentence of a change."""
    if of.HasField("value"):
        return quota_text(quotas.Quota(entity=of.entity, key=of.key, value=of.value))
    try:
        key = key_from_proto(of.key).value
    except UnknownQuotaError:
        key = UNKNOWN
    return f"{key} of {entity_from_proto(of.entity)} is removed"
