"""Decisions about quotas: setting and removing them.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Sequence
from typing import Final

from mesh.acls.subjects import plain_host
from mesh.quotas.codec import UnknownQuotaError, entity_from_proto, entity_to_proto, key_from_proto
from mesh.quotas.entity import Entity, Key
from mesh.routing.listed_policy import quota_key
from mesh.rpc import events, quotas
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.listed_changes import check_count

QUOTAS: Final = "quotas"
"""The stream of all decisions about quotas."""
MOST_QUOTAS: Final = 10_000
"""Each gateway holds all of them in memory, and gets them with each table: some 0.4 MB."""
MOST_AT_ONCE: Final = 1_000
"""Changes of one call."""
LONGEST_NAME: Final = 512
"""Characters of a user or of a client.id: a distinguished name in a certificate may be long."""
MOST: Final = 1e15
"""The highest value: each one up to it is exact as a float of 64 bits."""
CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f]")


def change_quotas(policy: quotas.QuotaPolicy, wanted: Sequence[quotas.QuotaChange]) -> events.QuotasChanged | None:
    """The event that sets and removes quotas; None if all of them are so already."""
    check_count(wanted, MOST_AT_ONCE)
    known = {quota_key(each): each.value for each in policy.quotas}
    asked: dict[bytes, quotas.QuotaChange] = {}
    for index, each in enumerate(wanted):
        change = checked(each, f"changes[{index}]")
        if asked.setdefault(quota_key(change), change) is not change:
            raise InvalidField(f"changes[{index}]", "has the entity and the key of an earlier change: say it once")
    new = [each for key, each in asked.items() if known.get(key) != (each.value if each.HasField("value") else None)]
    left = len(known) + sum((1 if each.HasField("value") else -1) for each in new if _counts(each, known))
    if left > MOST_QUOTAS:
        raise NotAllowed(
            "TOO_MANY_QUOTAS",
            QUOTAS,
            f"the mesh would have {left} quotas, and {MOST_QUOTAS} are possible: remove others, or use defaults",
        )
    return events.QuotasChanged(changes=new) if new else None


def _counts(change: quotas.QuotaChange, known: dict[bytes, float]) -> bool:
    """Whether the change makes or ends a quota."""
    return change.HasField("value") is not (quota_key(change) in known)


def checked(wanted: quotas.QuotaChange, field: str) -> quotas.QuotaChange:
    """The change with its address in the form that is compared. InvalidField if Kafka knows no such quota."""
    try:
        key = key_from_proto(wanted.key)
    except UnknownQuotaError:
        known = ", ".join(each.value for each in Key)
        raise InvalidField(f"{field}.key", f"is {wanted.key}, and no key: {known} are") from None
    entity = checked_entity(wanted.entity, f"{field}.entity")
    if key.is_about_addresses is (entity.ip is None):
        kind = "IP addresses" if key.is_about_addresses else "users and client ids"
        raise InvalidField(f"{field}.entity", f"is {entity}, and {key.value} is set for {kind}")
    made = quotas.QuotaChange(entity=entity_to_proto(entity), key=wanted.key)
    if wanted.HasField("value"):
        _check_value(key, wanted.value, f"{field}.value")
        made.value = wanted.value
    return made


def checked_entity(wanted: quotas.QuotaEntity, field: str) -> Entity:
    """The entity with its address in the form that is compared. InvalidField if no client can be meant."""
    entity = entity_from_proto(wanted)
    if entity == Entity():
        raise InvalidField(field, "names nobody: name a user, a client.id, both, or an IP address")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise InvalidField(field, f"is {entity}: an address stands alone, as in Kafka")
    for name, part in (("user", entity.user), ("client_id", entity.client_id)):
        if isinstance(part, str):
            check_name(part, f"{field}.{name}")
    if isinstance(entity.ip, str):
        return Entity(ip=address_of(entity.ip, f"{field}.ip"))
    return entity


def check_name(name: str, field: str) -> None:
    """InvalidField if no user or client has this name. A client.id may be empty; then its name is left out."""
    if not 0 < len(name) <= LONGEST_NAME or CONTROL_CHARACTERS.search(name):
        raise InvalidField(
            field, f"{name[:LONGEST_NAME]!r} is no name: 1 to {LONGEST_NAME} characters without control characters"
        )


def address_of(address: str, field: str) -> str:
    """An address in the form that gateways compare."""
    plain = plain_host(address)
    try:
        ipaddress.ip_address(plain)
    except ValueError:
        raise InvalidField(
            field, f"{address[:LONGEST_NAME]!r} is no IP address: gateways see addresses, neither names nor networks"
        ) from None
    return plain


def _check_value(key: Key, value: float, field: str) -> None:
    least = 0.0 if key is Key.REQUEST_PERCENTAGE else 1.0
    if not math.isfinite(value) or not least <= value <= MOST or value <= 0:
        bound = "above 0" if least == 0 else f"at least {least:g}"
        raise InvalidField(field, f"is {value:g}: {key.value} is {bound}, and at most {MOST:g}")
