"""The users who log in to gateways with a password: set, deleted, brought back, and as they follow from the log.

The log says which users exist and by which mechanisms they log in. It has no verifiers, and neither does the view.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesh.rpc import events, users
from mesh.scram import NotAVerifierError
from mesh.scram_codec import verifier_from_proto
from mesh.user_tables import MOST_USERS
from services.control.domain.errors import InvalidField, NotAllowed, Unknown

USERS: Final = "users"
"""The collection, in resource names. The decisions about a user are in the stream users/{name}."""
NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
MOST_DELETED: Final = 1_000
"""Deleted users whom control remembers outside of the history; the first deleted user is forgotten first."""


@dataclass(frozen=True, slots=True)
class Users:
    """The users, as decisions have made them."""

    present: Mapping[str, users.User] = field(default_factory=dict)
    deleted: Mapping[str, users.User] = field(default_factory=dict)
    """Users whom the last decision has deleted, in the order of these decisions."""

    @property
    def edition(self) -> int:
        """The position of the last decision about a user; 0 for none."""
        return max((each.revision for each in (*self.present.values(), *self.deleted.values())), default=0)

    def find(self, name: str) -> users.User | None:
        """The user, also a deleted one."""
        return self.present.get(name) or self.deleted.get(name)


def stream_of(name: str) -> str:
    return f"{USERS}/{name}"


def set_user(known: Users, name: str, verifiers: Sequence[users.ScramVerifier]) -> events.UserSet:
    """The event that makes a user, or replaces all verifiers of the user."""
    check_name(name)
    _require_room(known, name)
    if not verifiers:
        raise InvalidField("verifiers", "is empty; a user needs a verifier for one mechanism at least")
    if len({each.mechanism for each in verifiers}) < len(verifiers):
        raise InvalidField("verifiers", "has two for one mechanism; a user has one for each mechanism")
    for index, each in enumerate(verifiers):
        try:
            verifier_from_proto(each)
        except NotAVerifierError as error:
            raise InvalidField(f"verifiers[{index}]", str(error)) from None
    mechanisms = [users.UserMechanism(mechanism=each.mechanism, iterations=each.iterations) for each in verifiers]
    return events.UserSet(name=name, mechanisms=sorted(mechanisms, key=lambda each: each.mechanism))


def delete_user(known: Users, name: str) -> events.UserDeleted:
    """The event that deletes a user."""
    check_name(name)
    if name not in known.present:
        raise Unknown(stream_of(name), f"there is no user {name}; meshctl users list shows all")
    return events.UserDeleted(name=name)


def restore_user(known: Users, name: str, *, has_verifiers: bool) -> events.UserRestored:
    """The event that brings a deleted user back."""
    check_name(name)
    if name in known.present:
        raise NotAllowed("NOT_DELETED", stream_of(name), f"user {name} is not deleted: there is nothing to bring back")
    if name not in known.deleted:
        raise Unknown(stream_of(name), f"control remembers no deleted user {name}: set the user again")
    if not has_verifiers:
        text = f"control keeps the verifiers of {name} no longer: set the user again, with a password"
        raise NotAllowed("VERIFIERS_FORGOTTEN", stream_of(name), text)
    _require_room(known, name)
    return events.UserRestored(name=name)


def fold_users(known: Users, event: events.Event) -> Users:
    """The users after an event: the very same value if the event does not change them."""
    match event.WhichOneof("payload"):
        case "user_set":
            name, mechanisms = event.user_set.name, event.user_set.mechanisms
        case "user_restored" if event.user_restored.name in known.deleted:
            name = event.user_restored.name
            mechanisms = known.deleted[name].mechanisms
        case "user_deleted" if event.user_deleted.name in known.present:
            name = event.user_deleted.name
            gone = _user(event, name, known.present[name].mechanisms, deleted=True)
            remembered = {**known.deleted, name: gone}
            if len(remembered) > MOST_DELETED:
                del remembered[next(iter(remembered))]
            return Users(_without(known.present, name), remembered)
        case _:
            return known
    present = {**known.present, name: _user(event, name, mechanisms, deleted=False)}
    return Users(present, _without(known.deleted, name) if name in known.deleted else known.deleted)


def check_name(name: str) -> None:
    """InvalidField if no user can have the name."""
    if not NAME.fullmatch(name):
        raise InvalidField("user", f"{name!r} is no name: 1 to 255 characters without control characters")


def has_room(known: Users) -> bool:
    """Whether control can take one more user."""
    return len(known.present) < MOST_USERS


def _require_room(known: Users, name: str) -> None:
    if name not in known.present and not has_room(known):
        text = f"control knows {MOST_USERS} users, and no more: delete others, or let clients log in by OAUTHBEARER"
        raise NotAllowed("TOO_MANY_USERS", USERS, text)


def _user(event: events.Event, name: str, mechanisms: Sequence[users.UserMechanism], *, deleted: bool) -> users.User:
    made = users.User(
        name=name, mechanisms=mechanisms, revision=event.position, actor=event.actor, reason=event.reason,
        deleted=deleted,
    )  # fmt: skip
    made.time.CopyFrom(event.time)
    return made


def _without(known: Mapping[str, users.User], name: str) -> dict[str, users.User]:
    return {each: user for each, user in known.items() if each != name}
