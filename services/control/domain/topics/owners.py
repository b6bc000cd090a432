"""The owners of topics: names for people, which operators set and which give no rights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed

OWNERS: Final = "topicowners"
"""The collection, in resource names. The decisions about a topic are in the stream topicowners/{topic}."""
MOST: Final = 10_000
"""Topics with an owner."""
_OWNER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/-]{0,99}")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a topic, and the revision that said so."""

    name: str
    revision: int


Owners = Mapping[str, Owner]
"""Topic -> its owner; a topic without an owner is not there."""


def stream_of(topic: str) -> str:
    return f"{OWNERS}/{topic}"


def owner_of(known: Owners, topic: str) -> str:
    """Empty for nobody."""
    return known[topic].name if topic in known else ""


def set_owner(known: Owners, topic: str, owner: str) -> events.TopicOwnerSet | None:
    """The event; None if the owner is the same."""
    if owner and not _OWNER.fullmatch(owner):
        text = "is no owner: 1 to 100 of a-z, A-Z, 0-9, '.', '_', '-', '@' and '/', a letter or a digit first"
        raise InvalidField("owner", f"{owner[:100]!r} {text}")
    if owner == owner_of(known, topic):
        return None
    if owner and topic not in known and len(known) >= MOST:
        text = f"{MOST:,} topics have an owner, and no more are possible: remove the owners of others"
        raise NotAllowed("TOO_MANY_OWNERS", OWNERS, text)
    return events.TopicOwnerSet(topic=topic, owner=owner)


def fold_owners(known: Owners, event: events.Event) -> Owners:
    """The owners after an event: the very same value if the event does not change them."""
    if event.WhichOneof("payload") != "topic_owner_set":
        return known
    topic, owner = event.topic_owner_set.topic, event.topic_owner_set.owner
    left = {name: each for name, each in known.items() if name != topic}
    return {**left, topic: Owner(owner, event.position)} if owner else left
