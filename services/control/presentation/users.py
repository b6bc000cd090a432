"""Decisions about users as sentences; none has a verifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mesh.rpc import events, users
from mesh.scram_codec import mechanism_word


def _set(event: events.Event) -> str:
    return f"user {event.user_set.name} logs in by {mechanisms(event.user_set.mechanisms)}"


def _deleted(event: events.Event) -> str:
    return f"user {event.user_deleted.name} is deleted"


def _restored(event: events.Event) -> str:
    return f"user {event.user_restored.name} is back, with the verifiers of before"


def mechanisms(of: Iterable[users.UserMechanism]) -> str:
    """Such as "SCRAM-SHA-256 and SCRAM-SHA-512"."""
    return " and ".join(mechanism_word(each.mechanism) for each in of)


def explanation(name: str, found: users.User | None) -> str:
    """Whether a user can log in, and which decision says so."""
    if found is None:
        return f"{name} can't log in with a password: no decision in memory is about this user"
    origin = f"by decision {found.revision} of {found.actor}" + (f" ({found.reason})" if found.reason else "")
    if found.deleted:
        return f"{name} can't log in with a password: the user is deleted, {origin}"
    return f"{name} can log in by {mechanisms(found.mechanisms)}, {origin}"


SENTENCES: dict[str, Callable[[events.Event], str]] = {
    "user_set": _set,
    "user_deleted": _deleted,
    "user_restored": _restored,
}
"""Payload -> its only sentence."""
