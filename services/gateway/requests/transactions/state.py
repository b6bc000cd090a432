"""What one gateway keeps of a transactional id; see `parts`. Losing it costs questions."""

from dataclasses import dataclass, field
from typing import NamedTuple

PRODUCERS_REMEMBERED = 10_000
"""Transactional ids: about 10 MB."""
PRODUCER_SECONDS = 7 * 24 * 3600.0
"""Brokers forget an id that rests for so long."""


class Identity(NamedTuple):
    """What a coordinator tells producers of one transactional id apart by."""

    producer_id: int
    epoch: int


class Ended(NamedTuple):
    """The last transaction: who has ended it, and how."""

    identity: Identity
    committed: bool


@dataclass(slots=True)
class Producer:
    """One producer, from one identity at home to the next."""

    home: str
    identity: Identity
    """At home, and so the one that its client goes by."""
    elsewhere: dict[str, Identity] = field(default_factory=dict)
    """Its identities on other clusters, as far as they are known."""
    parts: set[str] = field(default_factory=set)
    """Clusters that this gateway has registered for the open transaction."""
    ended: Ended | None = None
