"""The end of a log, as far as signatures vouch for it. No I/O.

A signature vouches for all events before it. A log may begin without signatures; behind its first one, the last event
has one.
"""

from __future__ import annotations

from mesh.event_log.signatures import Signatures, UnsignedError
from mesh.rpc import events


class SignedEnd:
    """Takes the events of a log in their order. Without `signatures`, nothing counts as unsigned."""

    def __init__(self, signatures: Signatures | None) -> None:
        self._signatures = signatures
        self._has_begun = False
        self.unsigned_from = 0
        """Position of the first event that no signature vouches for; 0 if there is none."""
        self.reason = ""
        """Why that event does not count as signed."""

    def take(self, event: events.Event, body: bytes) -> None:
        if self._signatures is None:
            return
        try:
            self._signatures.check_event(event, body)
        except UnsignedError as error:
            if self._has_begun and not self.unsigned_from:
                self.unsigned_from, self.reason = event.position, str(error)
        else:
            self.sign()

    def sign(self) -> None:
        """The last event is signed."""
        self._has_begun = True
        self.unsigned_from, self.reason = 0, ""
