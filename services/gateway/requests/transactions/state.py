"""What one gateway keeps of a transactional id that spans clusters; see `spanning`."""

from dataclasses import dataclass, field
from typing import NamedTuple

SPANNING_REMEMBERED = 10_000
"""Transactional ids: about 10 MB."""
SPANNING_SECONDS = 7 * 24 * 3600.0
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
class Spanning:
    """One producer, from one identity at home to the next."""

    home: str
    identity: Identity
    """At home, and so the one that its client goes by."""
    beginning: dict[str, Identity] | None = None
    """By cluster, what its identities were when nothing was open; None if this gateway was not there."""
    found: dict[str, Identity] = field(default_factory=dict)
    """Identities that were learnt since."""
    ended: Ended | None = None

    def on(self, cluster: str) -> Identity | None:
        if cluster == self.home:
            return self.identity
        return self.found.get(cluster) or (self.beginning or {}).get(cluster)
