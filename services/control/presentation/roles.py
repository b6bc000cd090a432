"""Granted and revoked roles as sentences."""

from __future__ import annotations

from collections.abc import Callable

from mesh.rpc import access, events
from mesh.rpc.roles import role_and_bounds, role_word


def _granted(event: events.Event) -> str:
    given = event.role_granted.grant
    also = ", beside its other grants of this role" if event.role_granted.in_addition else ""
    others = ", with the right to call on behalf of others" if given.on_behalf_of_others else ""
    return f"{given.principal} is {role_and_bounds(given)}{others}{also}"


def _revoked(event: events.Event) -> str:
    taken = event.role_revoked
    if taken.role == access.ROLE_UNSPECIFIED:
        return f"{taken.principal} has no rights any more"
    return f"{taken.principal} is {role_word(taken.role)} no more"


SENTENCES: dict[str, Callable[[events.Event], str]] = {"role_granted": _granted, "role_revoked": _revoked}
"""Payload -> its only sentence."""
