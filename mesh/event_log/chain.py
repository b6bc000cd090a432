"""The chain of hashes: each event holds the hash of the one before, so that no event can be changed unnoticed.

1. The hash of an event is the SHA-256 of its bytes, as they stand in the log. To change an
   event, somebody would have to change all later events too, up to the last one. Control keeps its hash beside the log.
2. Releases that knew no chain wrote events without `previous_hash`. The hash of such an event covers the hash of the
   one before as well: so the first event that holds one covers all that was written before it.
3. An event without a hash is never a break by itself: one that has lost its hash has other bytes, and the next event
   tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from mesh.rpc import events


@dataclass(frozen=True, slots=True)
class Chain:
    """How far somebody has read, and the hash of the last event there."""

    position: int = 0
    hash: bytes = b""
    key_id: bytes = b""
    """The certificate by which the last event is signed; empty if it has no signature, or nobody has read it here."""

    def fits(self, event: events.Event) -> bool:
        """Whether the next event says of the last one what that one is."""
        return not event.previous_hash or event.previous_hash == self.hash

    def after(self, event: events.Event, body: bytes) -> Chain:
        """The chain one event further; `body` is the event as it stands in the log."""
        covered = body if event.previous_hash else self.hash + body
        return Chain(event.position, sha256(covered).digest(), event.signature.key_id)
