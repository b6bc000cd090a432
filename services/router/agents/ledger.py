"""One reading of the log from its first record: bytes in, routing states out. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.record_rules import RecordRules, fold_record_rules
from mesh.routing import RoutingState, fold
from mesh.rpc import events

ROUTING_PAYLOADS = frozenset(
    {
        "cluster_registered",
        "cluster_updated",
        "cluster_removed",
        "rule_set_changed",
        "rollout_switched",
        "rollout_aborted",
    }
)
"""What moves a table; everything else in the log only moves the position."""


class Ledger:
    """Folds the records of one reading; the next reading gets a new ledger."""

    def __init__(self) -> None:
        self.state = RoutingState()
        self.record_rules: RecordRules = {}
        self.next_offset = 0
        self.end_at_start: int | None = None
        """The offset that the log ended at when this reading began; None until that is known."""

    @property
    def caught_up(self) -> bool:
        """Whether everything that was in the log when this reading began is folded."""
        return self.end_at_start is not None and self.next_offset >= self.end_at_start

    def fold(self, value: bytes, offset: int) -> Folded:
        """The state after this record. LogGapError, DecodeError or ValueError: this reading can't go on."""
        event = events.Event.FromString(value)
        before, self.state = self.state, fold(self.state, event)
        if self.state is not before:
            self.record_rules = fold_record_rules(self.record_rules, event)
        self.next_offset = offset + 1
        moves = self.state is not before and event.WhichOneof("payload") in ROUTING_PAYLOADS
        return Folded(self.state, event.time.ToNanoseconds() / 1e9, moves)


@dataclass(frozen=True, slots=True)
class Folded:
    """A record of the log and what became of it."""

    state: RoutingState
    decided_at: float
    """When the decision was taken, in seconds since 1970."""
    moves: bool
    """False for what data planes need not hear: a repeated record, an event that is not about routing."""
