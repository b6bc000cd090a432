"""The grants of a principal: granted, revoked, brought back, and as they follow from the log."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.message import Message

from mesh.rpc import access, events, grants
from mesh.rpc.roles import PEOPLE, role_word
from services.control.domain.errors import InvalidField, NotAllowed, Unknown

ACCESS = "access"
"""The collection, in resource names. The decisions about a principal are in the stream access/{principal}."""
GROUP = "group:"
"""The beginning of a principal that stands for all with a token of a group."""
PRINCIPAL = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""A cluster, a sidecar, or the beginning of a topic; Kafka's longest topic name."""
MOST_PRINCIPALS = 10_000
"""Control holds all in memory and in each snapshot; some 3 MB."""
MOST_GRANTS = 100
"""Grants of one principal: each call tries them one after the other."""
MOST_NAMES = 100
"""Names in one list of a narrowed grant."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The decisions about a principal."""

    grants: tuple[grants.Grant, ...] = ()
    """By role and then by age."""
    is_shut_out: bool = False
    """A decision took all rights, also those by a certificate and by groups, and no later one has granted a role."""


Grants = Mapping[str, Standing]
"""Every principal about which something was decided."""


def stream_of(principal: str) -> str:
    return f"{ACCESS}/{principal}"


def grant(known: Grants, wanted: grants.Grant, *, in_addition: bool) -> events.RoleGranted | None:
    """The event of a new grant; None if the principal has this grant, and no other one would go."""
    _check(wanted)
    own = known.get(wanted.principal, Standing()).grants
    if wanted.principal not in known and len(known) >= MOST_PRINCIPALS:
        raise NotAllowed(
            "TOO_MANY_GRANTS", ACCESS, f"control knows {MOST_PRINCIPALS} principals, and no more: grant roles to groups"
        )
    of_role = [each for each in own if each.role == wanted.role]
    if any(_is_same(each, wanted) for each in of_role) and (in_addition or len(of_role) == 1):
        return None
    if in_addition and len(own) >= MOST_GRANTS:
        raise NotAllowed(
            "TOO_MANY_GRANTS",
            stream_of(wanted.principal),
            f"{wanted.principal} has {MOST_GRANTS} grants, and no more are possible: name several things in one",
        )
    return events.RoleGranted(grant=_decided(wanted), in_addition=in_addition)


def revoke(
    known: Grants, principal: str, role: access.Role.ValueType, first_admins: Collection[str]
) -> events.RoleRevoked | None:
    """The event that takes a role away, or all roles if `role` is unspecified; None if nothing is left to take."""
    _check_principal("principal", principal)
    if principal in first_admins and role in (access.ROLE_UNSPECIFIED, access.ROLE_ADMIN):
        raise NotAllowed(
            "FIRST_ADMIN",
            stream_of(principal),
            f"{principal} is an admin by control's setting first_admins, and no decision takes that away: change the "
            "setting, and restart control",
        )
    own = known.get(principal, Standing())
    if role == access.ROLE_UNSPECIFIED:
        return None if own.is_shut_out else events.RoleRevoked(principal=principal)
    _check_role("role", role)
    if not any(each.role == role for each in own.grants):
        has = ", ".join(sorted({role_word(each.role) for each in own.grants})) or "none"
        raise Unknown(
            stream_of(principal),
            f"{principal} has no grant of the role {role_word(role)} (has: {has}); leave the role out to take all "
            "rights, also those by a certificate and by groups",
        )
    return events.RoleRevoked(principal=principal, role=role)


def bring_back(present: Grants, earlier: Grants) -> list[Message]:
    """The events that make earlier grants those in force. A principal that is new since then loses all rights."""
    payloads: list[Message] = []
    for principal in sorted(present.keys() | earlier.keys()):
        before, now = (list(map(_decided, side.get(principal, Standing()).grants)) for side in (earlier, present))
        if before == now and (before or present.get(principal) == earlier.get(principal)):
            continue
        if not before and present[principal].is_shut_out:
            continue
        if now or not before:
            payloads.append(events.RoleRevoked(principal=principal))
        payloads += (events.RoleGranted(grant=each, in_addition=True) for each in before)
    return payloads


def fold_grants(known: Grants, event: events.Event) -> Grants:
    """The grants after an event: the very same value if the event does not change them."""
    match event.WhichOneof("payload"):
        case "role_granted":
            given = event.role_granted
            new = _decided(given.grant)
            new.revision, new.actor, new.reason = event.position, event.actor, event.reason
            new.time.CopyFrom(event.time)
            kept = [
                each
                for each in known.get(new.principal, Standing()).grants
                if not _is_same(each, new) and (given.in_addition or each.role != new.role)
            ]
            own = tuple(sorted([*kept, new], key=lambda each: (each.role, each.revision)))
            return {**known, new.principal: Standing(own)}
        case "role_revoked" if event.role_revoked.role == access.ROLE_UNSPECIFIED:
            return {**known, event.role_revoked.principal: Standing(is_shut_out=True)}
        case "role_revoked":
            taken = event.role_revoked
            own = known.get(taken.principal, Standing()).grants
            left = tuple(each for each in own if each.role != taken.role)
            return {**known, taken.principal: Standing(left)}
        case _:
            return known


def in_order(known: Grants) -> Iterator[grants.Grant]:
    """All grants, by principal, role and age."""
    for principal in sorted(known):
        yield from known[principal].grants


def _decided(grant: grants.Grant) -> grants.Grant:
    """The part of a grant that an admin decides."""
    made = grants.Grant(principal=grant.principal, role=grant.role, on_behalf_of_others=grant.on_behalf_of_others)
    if grant.narrowing.ByteSize():
        made.narrowing.CopyFrom(grant.narrowing)
    return made


def _is_same(one: grants.Grant, other: grants.Grant) -> bool:
    return _decided(one) == _decided(other)


def _check(wanted: grants.Grant) -> None:
    _check_principal("grant.principal", wanted.principal)
    _check_role("grant.role", wanted.role)
    for field, names in wanted.narrowing.ListFields():
        place = f"grant.narrowing.{field.name}"
        if len(names) > MOST_NAMES:
            raise InvalidField(place, f"has {len(names)} names, and {MOST_NAMES} are possible: make several grants")
        for name in names:
            if not NAME.fullmatch(name):
                raise InvalidField(place, f"{name!r} is no name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")


def _check_principal(field: str, principal: str) -> None:
    if not PRINCIPAL.fullmatch(principal.removeprefix(GROUP)):
        raise InvalidField(field, f"{principal!r} is no principal: 1 to 200 characters without spaces")


def _check_role(field: str, role: access.Role.ValueType) -> None:
    if role not in PEOPLE:
        known = ", ".join(map(role_word, PEOPLE))
        word = role_word(role) if role in access.Role.values() else str(role)
        raise InvalidField(field, f"{word} can't be granted: {known} can; a member has the role in its certificate")
