"""The state of a transactional id in one gateway's memory; see `parts`. Without it the gateway asks the clusters."""

from dataclasses import dataclass, field
from typing import NamedTuple

from mesh.transactions import Identity

PRODUCERS_REMEMBERED = 10_000
"""Transactional ids: about 10 MB."""
PRODUCER_SECONDS = 7 * 24 * 3600.0
"""Brokers forget an id that is unused for this long (`transactional.id.expiration.ms`)."""


class Ended(NamedTuple):
    """The end of the last transaction: the identity that ended it, and how."""

    identity: Identity
    committed: bool


@dataclass(slots=True)
class Producer:
    """One producer, from one identity at home to the next."""

    home: str
    identity: Identity
    """The identity at home, which the client uses."""
    elsewhere: dict[str, Identity] = field(default_factory=dict)
    """Its identities on other clusters, as far as they are known."""
    parts: set[str] = field(default_factory=set)
    """Clusters that this gateway has registered for the open transaction."""
    ended: Ended | None = None
    parts_before: frozenset[str] = frozenset()
    """Clusters that had a part of the last transaction: the open one may have parts there that this gateway has not
    seen."""
