"""A transaction as all clusters describe it: how far it is, and whether an operator may end it, and how.

Theory of operation
1. The rules are those of the gateways. The home cluster of a transactional id decides. A record in home's own
   transaction says that a transaction over several clusters is committed (`mesh.transactions.log`).
2. A transaction with a single part, on another cluster than home, has no such record: that cluster's commit decides.
3. Control finishes only a decided transaction, and aborts only an undecided one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesh.transactions import (
    COMMITTED,
    ONGOING,
    OPEN,
    TRANSACTIONS_TOPIC,
    Decision,
    Identity,
    parts_of,
    was_committed,
)
from services.control.domain.errors import NotAllowed, Unavailable, Unknown

TRANSACTIONS = "transactions"
"""The collection of transactions, in resource names."""
PREPARED_COMMIT = "PrepareCommit"


class Standing(Enum):
    """How far a transaction is."""

    UNDECIDED = "undecided"
    DECIDED = "decided"
    """Its commit is decided, and a cluster has not carried the decision out."""
    ENDING = "ending"
    """A coordinator writes the markers that end it."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """The state of a transactional id, as one cluster's coordinator describes it (KIP-664)."""

    identity: Identity
    state: str
    timeout_ms: int
    started_ms: int
    """By the cluster's clock; below 0 while nothing is open."""
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN


@dataclass(frozen=True, slots=True)
class Undone:
    """A decision that some clusters have not carried out."""

    home: str
    decision: Decision
    open_parts: Mapping[str, Identity]


@dataclass(frozen=True, slots=True)
class Sole:
    """The only part of a transaction is committed, and home has not heard of the commit."""

    cluster: str
    origin: str
    is_second_protocol: bool


@dataclass(frozen=True, slots=True)
class SeenTransaction:
    """All that is known of one transactional id now."""

    transactional_id: str
    home: str
    """The cluster that decides, by the rules of today."""
    states: Mapping[str, CoordinatorState]
    """By cluster. The states were read before the decisions."""
    decisions: Mapping[str, tuple[Decision, ...]] = field(default_factory=dict)
    """The decisions about the id that are not carried out, by the cluster whose log has them."""
    ordinals: Mapping[int, str] = field(default_factory=dict)
    """The clusters of the mesh, by ordinal."""
    unasked: Mapping[str, str] = field(default_factory=dict)
    """Clusters that could not be asked, with the reason."""

    @property
    def name(self) -> str:
        return f"{TRANSACTIONS}/{self.transactional_id}"

    @property
    def open_parts(self) -> dict[str, CoordinatorState]:
        """By cluster; the cluster where the transaction began comes first, and decides."""
        found = {cluster: state for cluster, state in self.states.items() if state.is_open}
        return dict(sorted(found.items(), key=lambda each: (each[0] != self.origin, each[0])))

    @property
    def origin(self) -> str:
        """The cluster whose coordinator decides about the open transaction: home, unless the id has moved since."""
        begun = [c for c, state in self.states.items() if state.is_open and TRANSACTIONS_TOPIC in state.topics]
        return self.home if self.home in begun or not begun else begun[0]

    @property
    def undone(self) -> tuple[Undone, ...]:
        return tuple(
            Undone(home, decision, left)
            for home, decisions in self.decisions.items()
            for decision in decisions
            if (left := self._left_of(decision))
        )

    def _left_of(self, decision: Decision) -> dict[str, Identity]:
        return {
            cluster: part.identity
            for cluster, part in decision.parts.items()
            if (told := self.states.get(cluster)) is not None
            and part.is_open(told.state, told.identity, told.started_ms)
        }

    @property
    def sole(self) -> Sole | None:
        """The only part, if it was committed before home heard of the commit."""
        at_home = self.states.get(self.origin)
        if at_home is None or at_home.state != ONGOING or set(at_home.topics) != {TRANSACTIONS_TOPIC}:
            return None
        registered = parts_of(at_home.topics[TRANSACTIONS_TOPIC])
        if len(registered) != 1:
            return None
        ((ordinal, remainders),) = registered.items()
        cluster = self.ordinals.get(ordinal, "")
        told = self.states.get(cluster)
        if told is None or told.state not in COMMITTED:
            return None
        epoch = told.identity.epoch
        if was_committed(told.state, epoch, remainders, second_protocol=True):
            return Sole(cluster, self.origin, True)
        same_epoch = was_committed(told.state, epoch, remainders, second_protocol=False)
        return Sole(cluster, self.origin, False) if same_epoch and told.started_ms >= at_home.started_ms else None

    @property
    def standing(self) -> Standing:
        left = self.open_parts
        if not left:
            return Standing.ENDED
        if self.undone or self.sole is not None:
            return Standing.DECIDED
        decides = left.get(self.origin)
        is_committing = decides is not None and decides.state == PREPARED_COMMIT
        if is_committing or all(state.state != ONGOING for state in left.values()):
            return Standing.ENDING
        return Standing.UNDECIDED

    @property
    def started_ms(self) -> int | None:
        """The start of the part that began first; None while nothing is open."""
        return min((state.started_ms for state in self.open_parts.values() if state.started_ms >= 0), default=None)

    def is_late(self, now_ms: int, older_than_ms: int | None = None) -> bool:
        """Whether it is open for longer than this, or else than the client's time-out; parts have a longer one."""
        started_ms = self.started_ms
        if started_ms is None:
            return False
        client_ms = min(state.timeout_ms for state in self.states.values())
        return now_ms - started_ms > (client_ms if older_than_ms is None else older_than_ms)

    @property
    def decision_text(self) -> str:
        """The decision and its producer, as a sentence; empty while nothing is decided."""
        if self.undone:
            first = self.undone[0]
            who = f"producer {first.decision.at_home.producer_id} (epoch {first.decision.at_home.epoch})"
            waits = ", ".join(sorted(first.open_parts))
            return f"committed by {who} on {first.home}; the commit is still to come on {waits}"
        sole = self.sole
        if sole is None or self.standing is not Standing.DECIDED:
            return ""
        return f"committed on {sole.cluster}, its only part; {sole.origin} has not heard of the commit"

    # --- what an operator may do ---------------------------------------------------------------------------------

    def require_known(self) -> None:
        """Refuses an id that no cluster knows."""
        if self.states:
            return
        if self.unasked:
            raise self._away("looked up")
        raise Unknown(self.name, f"no cluster knows the transactional id {self.transactional_id!r}; see the list")

    def require_finishable(self) -> None:
        """Refuses a transaction that is not decided, or whose clusters can't all be asked."""
        self.require_known()
        if self.unasked:
            raise self._away("finished")
        if self.standing is not Standing.DECIDED:
            raise NotAllowed("TRANSACTION_NOT_DECIDED", self.name, self._why_not("finish", "abort"))

    def require_abortable(self) -> None:
        """Refuses a transaction that is decided, or about which a cluster that is away may have decided."""
        self.require_known()
        if self.unasked:
            raise self._away("aborted")
        if self.standing is not Standing.UNDECIDED:
            raise NotAllowed("TRANSACTION_NOT_OPEN", self.name, self._why_not("abort", "finish"))

    def _away(self, ended: str) -> Unavailable:
        said = "; ".join(self.unasked.values())
        return Unavailable(
            "CLUSTER_UNREACHABLE",
            f"transaction {self.transactional_id!r} can't be {ended} now, because each cluster may have decided about "
            f"it: {said}. Retry when all clusters answer",
            {"clusters": ", ".join(sorted(self.unasked))},
        )

    def _why_not(self, wanted: str, instead: str) -> str:
        name = repr(self.transactional_id)
        match self.standing:
            case Standing.DECIDED:
                return f"transaction {name} is decided: {self.decision_text}. {instead.capitalize()} it instead"
            case Standing.UNDECIDED:
                where = ", ".join(self.open_parts)
                return f"transaction {name} is not decided, and open on {where}. {instead.capitalize()} it instead"
            case Standing.ENDING:
                where = ", ".join(f"{c} ({state.state})" for c, state in self.open_parts.items())
                return f"a coordinator ends transaction {name} now: {where}. There is nothing to {wanted}; look again"
            case Standing.ENDED:
                return f"nothing of transaction {name} is open: there is nothing to {wanted}"


def in_order(found: Iterable[SeenTransaction]) -> list[SeenTransaction]:
    """By transactional id."""
    return sorted(found, key=lambda each: each.transactional_id)
