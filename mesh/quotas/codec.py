"""Quotas and policies from the messages of quotas.proto, and back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from mesh.quotas.entity import DEFAULT, Default, Entity, Key, Name, Quota
from mesh.quotas.policy import Policy, Sharers
from mesh.quotas.shares import Use
from mesh.rpc import quotas

MOST_PARTS: Final = 500
"""Parts of quotas in one report, and in one message of control."""
_KEYS: Final = {
    quotas.QUOTA_KEY_PRODUCER_BYTE_RATE: Key.PRODUCER_BYTE_RATE,
    quotas.QUOTA_KEY_CONSUMER_BYTE_RATE: Key.CONSUMER_BYTE_RATE,
    quotas.QUOTA_KEY_REQUEST_PERCENTAGE: Key.REQUEST_PERCENTAGE,
    quotas.QUOTA_KEY_CONNECTION_CREATION_RATE: Key.CONNECTION_CREATION_RATE,
}
_KEY_NUMBERS: Final = {key: number for number, key in _KEYS.items()}


class UnknownQuotaError(ValueError):
    """A newer release of the mesh has set this quota. A table with such a quota is refused (`mesh.routing.codec`)."""


def key_from_proto(number: quotas.QuotaKey.ValueType) -> Key:
    """UnknownQuotaError if the number is not known here."""
    key = _KEYS.get(number)
    if key is None:
        raise UnknownQuotaError(f"{number} is no key of a quota that this release knows")
    return key


def key_to_proto(key: Key) -> quotas.QuotaKey.ValueType:
    return _KEY_NUMBERS[key]


def entity_from_proto(message: quotas.QuotaEntity) -> Entity:
    """A part that is unset is no condition."""
    parts: list[Name | None] = []
    for name in ("user", "client_id", "ip"):
        part = getattr(message, name)
        kind = part.WhichOneof("kind") if message.HasField(name) else None
        parts.append(None if kind is None else DEFAULT if kind == "is_default" else part.name)
    return Entity(*parts)


def entity_to_proto(entity: Entity) -> quotas.QuotaEntity:
    return quotas.QuotaEntity(
        user=_name_to_proto(entity.user), client_id=_name_to_proto(entity.client_id), ip=_name_to_proto(entity.ip)
    )


def _name_to_proto(name: Name | None) -> quotas.QuotaName | None:
    if name is None:
        return None
    return quotas.QuotaName(is_default=True) if isinstance(name, Default) else quotas.QuotaName(name=name)


def quota_from_proto(message: quotas.Quota) -> Quota:
    """UnknownQuotaError if a number is not known here."""
    return Quota(entity_from_proto(message.entity), key_from_proto(message.key), message.value)


def quota_to_proto(quota: Quota) -> quotas.Quota:
    return quotas.Quota(entity=entity_to_proto(quota.entity), key=_KEY_NUMBERS[quota.key], value=quota.value)


def policy_from_proto(message: quotas.QuotaPolicy) -> Policy:
    """As `quota_from_proto`, of all quotas."""
    return Policy(map(quota_from_proto, message.quotas))


def uses_from_proto(message: quotas.QuotaParts) -> dict[Sharers, Use]:
    """The uses of a gateway's clients. Keys that are not known here are left out."""
    return {_sharers(each): Use(each.part, each.pauses) for each in message.parts if each.key in _KEYS}


def uses_to_proto(uses: Mapping[Sharers, Use]) -> quotas.QuotaParts:
    parts = (_part(sharers, use.part, pauses=use.pauses) for sharers, use in uses.items())
    return quotas.QuotaParts(parts=islice(parts, MOST_PARTS))


def shares_from_proto(message: quotas.QuotaParts) -> dict[Sharers, float]:
    """The shares of a gateway."""
    return {_sharers(each): each.part for each in message.parts if each.key in _KEYS}


def shares_to_proto(gateways: int, shares: Mapping[Sharers, float]) -> quotas.QuotaParts:
    parts = (_part(sharers, share) for sharers, share in shares.items())
    return quotas.QuotaParts(gateways=gateways, parts=islice(parts, MOST_PARTS))


def _sharers(part: quotas.QuotaPart) -> Sharers:
    user, client_id, ip = (getattr(part, name) if part.HasField(name) else None for name in ("user", "client_id", "ip"))
    return _KEYS[part.key], user, client_id, ip


def _part(sharers: Sharers, part: float, *, pauses: bool = False) -> quotas.QuotaPart:
    key, user, client_id, ip = sharers
    return quotas.QuotaPart(key=_KEY_NUMBERS[key], user=user, client_id=client_id, ip=ip, part=part, pauses=pauses)
