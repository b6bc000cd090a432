"""One reading of the log, from its first record or from a snapshot on: bytes in, routing states out. No I/O.

Events are chained by their hashes, and large events come in pieces (`mesh.event_log`). The ledger remembers a broken
link and continues: data planes have no other source than the log, and people have to find out who changed the log.
With signatures, only events count that control vouches for (`vouching.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.event_log import Assembler, Chain, DamagedPieceError, Signatures, upcast
from mesh.event_log.pieces import Headers
from mesh.record_rules import RecordRules, fold_record_rules
from mesh.routing import Folding, RoutingState
from mesh.routing.policies import POLICY_EVENTS
from mesh.rpc import events
from services.router.agents.snapshots import Snapshot, hash_of
from services.router.agents.vouching import Read, Vouching

ROUTING_PAYLOADS = frozenset(
    {
        "cluster_registered",
        "cluster_updated",
        "cluster_removed",
        "rule_set_changed",
        "rollout_switched",
        "rollout_aborted",
        *POLICY_EVENTS,
    }
)
"""The events that change a table; all other events only move the position."""


class Ledger:
    """Folds the records of one reading; the next reading gets a new ledger."""

    def __init__(self, begun: Snapshot | None = None, signatures: Signatures | None = None) -> None:
        """`signatures`: only events count that control vouches for."""
        self._signatures = signatures
        self.vouching = None if signatures is None else Vouching(signatures, begun.chain if begun else Chain())
        self.begun = begun
        """The snapshot that this reading began with."""
        self._routing = Folding(RoutingState() if begun is None else begun.routing)
        self.record_rules: RecordRules = {} if begun is None else begun.record_rules
        self._chain = Chain() if begun is None else begun.chain if begun.chain_hash else None
        """None behind a snapshot of an older release, until there is a chained event."""
        self.changed_at = 0
        """Position of the first event whose hash differs from the hash in the event after it; 0 while there is none."""
        self._assembler = Assembler()
        self._last: tuple[int, bytes] | None = None
        """Offset and value of the last record of the last event that was folded here."""
        self.next_offset = 0 if begun is None else begun.offset + 1
        self.end_at_start: int | None = None
        """The offset that the log ended at when this reading began; None until that is known."""

    @property
    def state(self) -> RoutingState:
        """Made when it is asked for: while a long log is folded, nobody should."""
        return self._routing.state

    @property
    def position(self) -> int:
        return self._routing.position

    @property
    def caught_up(self) -> bool:
        """Whether everything that was in the log when this reading began is folded."""
        return self.end_at_start is not None and self.next_offset >= self.end_at_start

    def fold(self, value: bytes, offset: int, headers: Headers = ()) -> Folded | None:
        """Takes in this record; None if the rest of its event is still to come. LogGapError, DecodeError or ValueError:
        this reading can't go on.
        """
        self.next_offset = offset + 1
        if self.vouching is None:
            body = self._assembler.take(value, headers)
            return None if body is None else self._fold(Read(upcast(body), body, offset, value))
        try:
            body = self._assembler.take(value, headers)
        except DamagedPieceError as error:
            self.vouching.refuse(offset, str(error))
            return None
        event = None if body is None else self.vouching.event_of(body, offset)
        if body is None or event is None:
            return None
        read = Read(event, body, offset, value)
        if event.position <= self.position:
            return self._fold(read)
        folded = [self._fold(each) for each in self.vouching.take(read)]
        if not folded:
            return None
        return Folded(folded[-1].decided_at, any(each.moves for each in folded))

    def _fold(self, read: Read) -> Folded:
        event = read.event
        is_news = event.position > self.position
        self._routing.fold(event)
        if is_news:
            self._follow_chain(event, read.body)
            self.record_rules = fold_record_rules(self.record_rules, event)
            self._last = read.offset, read.value
        return Folded(event.time.ToNanoseconds() / 1e9, is_news and event.WhichOneof("payload") in ROUTING_PAYLOADS)

    def _follow_chain(self, event: events.Event, body: bytes) -> None:
        if self._chain is not None and not self._chain.fits(event):
            self.changed_at = self.changed_at or self._chain.position
        if self._chain is not None or event.previous_hash:
            self._chain = (self._chain or Chain()).after(event, body)

    def snapshot(self, router: str) -> Snapshot | None:
        """A snapshot of all folded events; None before there was a new event."""
        if self._last is None:
            return None
        offset, value = self._last
        return Snapshot(
            self.state,
            self.record_rules,
            offset,
            hash_of(value),
            router,
            chain_hash=b"" if self._chain is None else self._chain.hash,
            shown=() if self._signatures is None else tuple(self._signatures.shown),
        )


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of folding one record of the log."""

    decided_at: float
    """When the decision was taken, in seconds since 1970."""
    moves: bool
    """False for events that data planes do not need: a repeated record, an event that is not about routing."""
