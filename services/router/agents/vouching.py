"""Which events of the log count, if the router trusts signatures alone. No I/O.

Theory of operation
1. A signature of control vouches for its event and, by the chain of hashes, for all events before it. An event without
   a signature waits for a later one that vouches for it. So a log that begins without signatures counts from its first
   signature on.
2. Somebody else may add an event to the topic, without a signature of control. Such an event waits, and holds up
   nothing: the event of control that comes behind it at the same position continues the chain without it.
3. A signed event that does not continue the log ends the reading: this is another log, or events are missing.
4. A record that is no event, or that can stand at no place of the log, is refused if control has not signed it. The
   reading continues: whoever can write to the topic can't keep the router from control's decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from mesh.event_log import Chain, NewerFormatError, Signatures, UnsignedError, upcast
from mesh.rpc import events

MOST_WAITING: Final = 1_000_000
MOST_WAITING_BYTES: Final = 512 * 1024 * 1024
"""Bounds of the events that wait: an old log without signatures fits."""


class UnsignedLogError(ValueError):
    """Control has not signed this log, or it does not continue what was signed."""


@dataclass(frozen=True, slots=True)
class Read:
    """An event of the log, and the last record that holds it."""

    event: events.Event
    body: bytes
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The records of a reading that control can't have written."""

    records: int = 0
    offset: int = -1
    """The offset of the last one."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Waiting:
    before: Chain
    read: Read


class Vouching:
    """The events of one reading, as far as control vouches for them; `chain` is the end of what counts already."""

    def __init__(self, signatures: Signatures, chain: Chain) -> None:
        self._signatures = signatures
        self._chain = chain
        self._waiting: dict[int, dict[bytes, _Waiting]] = {}
        """By position, and by the hash of the chain after the event."""
        self._count = self._bytes = 0
        self.reason = ""
        """The reason why the last event that waits is not signed."""
        self.refused = Refused()

    @property
    def waiting(self) -> int:
        """Events beyond the end of what counts."""
        return self._count

    @property
    def has_begun(self) -> bool:
        """Whether the log has a signature, or no event at all."""
        return self._signatures.have_begun or not self._count

    def refuse(self, offset: int, reason: str) -> None:
        """The record at this offset does not count."""
        self.refused = Refused(self.refused.records + 1, offset, reason)

    def event_of(self, body: bytes, offset: int) -> events.Event | None:
        """The event in a record; None if the record is refused. NewerFormatError if control has signed it."""
        try:
            return upcast(body)
        except DecodeError as error:
            self.refuse(offset, f"it is no event: {error}")
        except NewerFormatError:
            try:
                self._signatures.check_event(events.Event.FromString(body), body)
            except UnsignedError as error:
                self.refuse(offset, str(error))
            else:
                raise
        return None

    def take(self, read: Read) -> list[Read]:
        """The events that count from now on, in their order; none while this one waits. UnsignedLogError."""
        event = read.event
        try:
            self._signatures.check_event(event, read.body)
        except UnsignedError as error:
            self._wait(read, str(error))
            return []
        before = next((each for each in self._ends_before(event.position) if each.fits(event)), None)
        if before is None:
            raise UnsignedLogError(
                f"event {event.position} is signed by control, and does not continue the log that was read up to event "
                f"{self._chain.position}: run kafka-mesh verify-log"
            )
        end, vouched = before.after(event, read.body), [read]
        while before.position > self._chain.position:
            earlier = self._waiting[before.position][before.hash]
            vouched.append(earlier.read)
            before = earlier.before
        self._chain = end
        self._waiting.clear()
        self._count = self._bytes = 0
        return vouched[::-1]

    def _wait(self, read: Read, reason: str) -> None:
        event = read.event
        places = [each for each in self._ends_before(event.position) if each.fits(event)]
        if not places:
            self.refuse(read.offset, f"event {event.position} does not continue the log, and {reason}")
            return
        self.reason = reason
        for before in places:
            place = self._waiting.setdefault(event.position, {})
            if place.setdefault(before.after(event, read.body).hash, waits := _Waiting(before, read)) is waits:
                self._count += 1
                self._bytes += len(read.body)
        if self._count > MOST_WAITING or self._bytes > MOST_WAITING_BYTES:
            raise UnsignedLogError(
                f"{self._count} events ({self._bytes} bytes) wait for a signature of control, and none has come: "
                "start a control that has a certificate"
            )

    def _ends_before(self, position: int) -> list[Chain]:
        """The ends of the log at which an event at `position` may stand."""
        if position == self._chain.position + 1:
            return [self._chain]
        earlier = self._waiting.get(position - 1, {})
        return [Chain(position - 1, hash_) for hash_ in earlier]
