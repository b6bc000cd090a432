"""Roles and grants in words, and the order of roles."""

from __future__ import annotations

import re

from mesh.rpc import access, grants

PEOPLE = (access.ROLE_VIEWER, access.ROLE_OPERATOR, access.ROLE_ADMIN)
"""The roles of people and programs. Each one has the rights of those before it."""
ROLES = {name.removeprefix("ROLE_").lower(): number for name, number in access.Role.items() if number}
"""Word -> role, also of members."""
SPIFFE_ID = re.compile(r"spiffe://[^/]+/(?P<role>[a-z]+)/(?P<name>[^/\s]+)")
"""The URI by which a certificate names its role: spiffe://MESH/ROLE/NAME."""


def role_word(role: access.Role.ValueType) -> str:
    """ "operator"."""
    return access.Role.Name(role).removeprefix("ROLE_").lower()


def suffices(role: access.Role.ValueType, access_to: access.Access) -> bool:
    """Whether the role is one of a method's, or a higher role of people."""
    if role in access_to.roles:
        return True
    return role in PEOPLE and any(each in PEOPLE and each <= role for each in access_to.roles)


def narrowing_text(narrowing: grants.Narrowing) -> str:
    """ "for topics shop.* on clusters c1"; empty for the whole mesh."""
    texts = {
        "for topics": [f"{each}*" for each in narrowing.topic_prefixes],
        "on clusters": list(narrowing.clusters),
        "at sidecars": list(narrowing.sidecars),
    }
    return " ".join(f"{word} {', '.join(names)}" for word, names in texts.items() if names)


def role_and_bounds(grant: grants.Grant) -> str:
    """ "operator for topics shop.*"."""
    return " ".join(word for word in (role_word(grant.role), narrowing_text(grant.narrowing)) if word)
