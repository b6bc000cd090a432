"""The state that follows from the records of partition 0 of `mesh.transactions`.

Theory of operation
1. A *decision* says that a transaction over several clusters is committed, and names its parts. The decision is written
   in the transaction at home itself: the commit marker of home's coordinator makes the decision valid, the abort marker
   makes it void. So a producer that was fenced at home decides nothing, and no reader sees a decision that is not
   final.
   Kafka 4.3 and 4.4 may skip the marker of a partition that has no leader (KAFKA-20734). Then a gateway asks home's
   coordinator. If home has committed the transaction, the gateway repeats the decision outside a transaction: that
   record is valid at once.
2. A *note* says that a producer could not be fenced on a cluster when its successor began. It is valid at once.
3. Both end with a record of the same key and no value, once they are carried out.
4. A decision also has the last stable offset of each partition of the transaction, asked just before the decision.
   While the decision is not carried out, readers through the mesh see no records from there on. Decisions of older
   gateways have no such offsets, so nothing is held back for them.
5. The log is read up to its high watermark, markers included, and not as `read_committed` shows it: an open transaction
   of one id must not hide what was decided about others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.transactions.records import Decision, DecisionKey, NoteKey, read_decision, read_key


@dataclass(slots=True)
class TransactionLog:
    """The content of one home's log, as far as one process has read it."""

    next_offset: int = 0
    _decisions: dict[str, dict[bytes, Decision]] = field(default_factory=dict)
    """By transactional id and key."""
    _notes: set[tuple[str, str]] = field(default_factory=set)
    """Transactional id and cluster."""
    _undecided: dict[int, dict[bytes, Decision]] = field(default_factory=dict)
    """Decisions that are written, and neither committed nor aborted, by producer id and key."""
    state: object = field(default_factory=object, compare=False)
    """Another object after each change of the decisions."""

    def mark(self, producer_id: int, *, committed: bool) -> None:
        """Takes a marker that ends a transaction of this producer."""
        if producer_id in self._undecided:
            self.state = object()
        for key, decision in self._undecided.pop(producer_id, {}).items():
            if committed:
                self._decisions.setdefault(decision.transactional_id, {})[key] = decision

    def enter(self, key: bytes, value: bytes | None, undecided_of: int | None) -> None:
        """Takes a record. `undecided_of`: the producer in whose transaction it is; None outside a transaction."""
        match read_key(key):
            case NoteKey(transactional_id, cluster):
                (self._notes.discard if value is None else self._notes.add)((transactional_id, cluster))
            case DecisionKey() as of:
                if value is None:
                    self._forget(of.transactional_id, key, of.at_home.producer_id)
                    return
                decision = read_decision(of, value)
                if decision is not None:
                    self._take(decision, key, undecided_of)

    def _take(self, decision: Decision, key: bytes, undecided_of: int | None) -> None:
        self.state = object()
        if undecided_of is not None:
            self._undecided.setdefault(undecided_of, {})[key] = decision
            return
        self._undecided.get(decision.at_home.producer_id, {}).pop(key, None)
        self._decisions.setdefault(decision.transactional_id, {})[key] = decision

    def _forget(self, transactional_id: str, key: bytes, producer_id: int) -> None:
        """Drops a decision, also one whose marker comes after the record that ends the decision."""
        self.state = object()
        self._undecided.get(producer_id, {}).pop(key, None)
        known = self._decisions.get(transactional_id)
        if known is not None and known.pop(key, None) is not None and not known:
            del self._decisions[transactional_id]

    def decisions_on(self, transactional_id: str) -> tuple[Decision, ...]:
        """The decisions about the id that were not carried out, as far as the log was read."""
        return tuple(self._decisions.get(transactional_id, {}).values())

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(decision for by_key in self._decisions.values() for decision in by_key.values())

    @property
    def written(self) -> tuple[Decision, ...]:
        """Decisions that home has neither committed nor aborted, as far as the log was read."""
        return tuple(decision for by_key in self._undecided.values() for decision in by_key.values())

    def written_about(self, transactional_id: str) -> tuple[Decision, ...]:
        """Those of the written decisions that are about this id."""
        return tuple(decision for decision in self.written if decision.transactional_id == transactional_id)

    def void(self, decision: Decision) -> None:
        """Home has not committed the transaction of this written decision, and will not."""
        undecided = self._undecided.get(decision.at_home.producer_id, {})
        if undecided.get(decision.key) == decision:
            self.state = object()
            del undecided[decision.key]

    def carried_out(self, decision: Decision) -> None:
        """The decision ends for this process, before the log says so."""
        self._forget(decision.transactional_id, decision.key, decision.at_home.producer_id)

    def is_unfenced(self, transactional_id: str, cluster: str) -> bool:
        return (transactional_id, cluster) in self._notes
