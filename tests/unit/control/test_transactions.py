"""Transactions that an operator ends: what is decided is never aborted, what is not decided is never finished."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mesh.routing import RoutingTable, UpstreamCluster
from mesh.rpc import events
from mesh.transactions import (
    PART_TIMEOUT_MS,
    TRANSACTIONS_TOPIC,
    Decision,
    Identity,
    Part,
    TransactionLog,
    registry_partition,
)
from services.control.decisions.transactions.transactions import Transactions
from services.control.domain.errors import Conflict, NotAllowed, Unavailable, Unknown
from services.control.domain.transactions.transactions import CoordinatorState, SeenTransaction, Standing
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import AlreadyAnswered, Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import UnreachableError
from services.control.upstream.transactions import TransactionCoordinators

ID = "payments-1"
HOME, PART = Identity(7, 3), Identity(90, 5)
TIMEOUT_MS = 60_000
CLUSTERS = {
    "c1": UpstreamCluster("c1", ("127.0.0.1:1",), 1, home=True),
    "c2": UpstreamCluster("c2", ("127.0.0.1:2",), 2),
}
REGISTERED = {TRANSACTIONS_TOPIC: (registry_partition(2, PART.epoch),)}
DECISION = Decision(ID, HOME, 4, {"c2": Part(PART, 1_000)})
ADA = Caller("ada", "its application is gone")


def state(identity: Identity, word: str, started_ms: int = 1_000, **topics: tuple[int, ...]) -> CoordinatorState:
    return CoordinatorState(identity, word, TIMEOUT_MS, started_ms, topics)


AT_HOME = CoordinatorState(HOME, "Ongoing", TIMEOUT_MS, 1_000, {"apples": (0,), **REGISTERED})
ON_C2 = state(PART, "Ongoing", bananas=(0, 1))
COMMITTED_AT_HOME = state(HOME, "CompleteCommit")


def seen(decisions: Sequence[Decision] = (), **states: CoordinatorState) -> SeenTransaction:
    ordinals = {cluster.ordinal: name for name, cluster in CLUSTERS.items()}
    return SeenTransaction(ID, "c1", states, {"c1": tuple(decisions)} if decisions else {}, ordinals)


@pytest.mark.parametrize(
    ("transaction", "standing"),
    [
        (seen(c1=AT_HOME, c2=ON_C2), Standing.UNDECIDED),
        (seen(c2=ON_C2), Standing.UNDECIDED),
        (seen([DECISION], c1=COMMITTED_AT_HOME, c2=ON_C2), Standing.DECIDED),
        # the same identity goes on to the next transaction by the first protocol: the old decision is not about it
        (seen([DECISION], c1=COMMITTED_AT_HOME, c2=state(PART, "Ongoing", 2_000)), Standing.UNDECIDED),
        (seen([DECISION], c1=COMMITTED_AT_HOME, c2=state(PART, "CompleteCommit")), Standing.ENDED),
        # home is about to make its decision valid
        (seen(c1=replace(AT_HOME, state="PrepareCommit"), c2=ON_C2), Standing.ENDING),
        (seen(c1=replace(AT_HOME, state="PrepareAbort")), Standing.ENDING),
        (seen(c1=state(HOME, "Empty", -1)), Standing.ENDED),
    ],
)
def test_how_far_a_transaction_is(transaction: SeenTransaction, standing: Standing) -> None:
    assert transaction.standing is standing


@pytest.mark.parametrize(("epoch", "started_ms"), [(PART.epoch + 1, 0), (PART.epoch, 1_000)])
def test_a_transaction_whose_only_part_is_committed_is_decided(epoch: int, started_ms: int) -> None:
    """By the second protocol the epoch says so, by the first the start."""
    only_registered = CoordinatorState(HOME, "Ongoing", TIMEOUT_MS, 1_000, REGISTERED)
    committed = state(Identity(PART.producer_id, epoch), "CompleteCommit", started_ms)
    sole = seen(c1=only_registered, c2=committed)
    assert sole.standing is Standing.DECIDED
    assert sole.decision_text == "committed on c2, its only part; c1 has not heard of the commit"
    also_at_home = seen(c1=AT_HOME, c2=committed)
    assert also_at_home.standing is Standing.UNDECIDED
    earlier = seen(c1=only_registered, c2=state(PART, "CompleteCommit", 999))
    assert earlier.standing is Standing.UNDECIDED


def test_a_transaction_is_late_after_its_time_out_or_what_the_caller_says() -> None:
    begun = seen(c1=AT_HOME, c2=ON_C2)
    assert not begun.is_late(1_000 + TIMEOUT_MS)
    assert begun.is_late(1_001 + TIMEOUT_MS)
    assert begun.is_late(3_000, 1_999)
    assert not begun.is_late(3_000, 2_000)
    assert not seen(c1=state(HOME, "Empty", -1)).is_late(10**9, 0)
    part = CoordinatorState(PART, "Ongoing", PART_TIMEOUT_MS, 1_000, {"bananas": (0,)})
    left = seen(c1=state(HOME, "CompleteAbort", 1_000), c2=part)
    assert left.is_late(1_001 + TIMEOUT_MS), "its home has the client's time-out"


def test_the_deciding_cluster_of_an_id_that_moved_is_where_its_transaction_began() -> None:
    registered_on_c2 = CoordinatorState(PART, "Ongoing", TIMEOUT_MS, 1_000, {TRANSACTIONS_TOPIC: (1,)})
    moved = seen(c1=state(HOME, "Ongoing", apples=(0,)), c2=registered_on_c2)
    assert moved.origin == "c2"
    assert list(moved.open_parts) == ["c2", "c1"]


@dataclass
class Clusters:
    """Coordinators of both clusters in memory; `before` is called before each end, as others act meanwhile."""

    states_of: dict[str, CoordinatorState]
    decisions: list[Decision] = field(default_factory=list)
    away: set[str] = field(default_factory=set)
    before: Callable[[str], None] = lambda _: None
    done: list[tuple[str, str, Identity]] = field(default_factory=list)

    def _reach(self, cluster: UpstreamCluster) -> None:
        if cluster.name in self.away:
            raise UnreachableError(f"cluster '{cluster.name}' does not answer: down")

    async def listed(self, cluster: UpstreamCluster, states: Iterable[str] = ()) -> set[str]:
        self._reach(cluster)
        found = self.states_of.get(cluster.name)
        return {ID} if found is not None and (not states or found.state in set(states)) else set()

    async def states(self, cluster: UpstreamCluster, ids: Collection[str]) -> dict[str, CoordinatorState]:
        self._reach(cluster)
        return {ID: self.states_of[cluster.name]} if ID in ids and cluster.name in self.states_of else {}

    async def log(self, cluster: UpstreamCluster) -> TransactionLog:
        self._reach(cluster)
        log = TransactionLog()
        for decision in self.decisions if cluster.name == "c1" else ():
            log.enter(decision.key, decision.value, decision.at_home.producer_id)
            log.mark(decision.at_home.producer_id, committed=True)
        return log

    async def end(
        self, cluster: UpstreamCluster, transactional_id: str, identity: Identity, *, commit: bool, second: bool
    ) -> bool:
        self.before(cluster.name)
        self._reach(cluster)
        known = self.states_of[cluster.name]
        if known.identity != identity or known.state != "Ongoing":
            return False
        self.states_of[cluster.name] = replace(known, state="CompleteCommit" if commit else "CompleteAbort", topics={})
        self.done.append(("commit" if commit else "abort", cluster.name, identity))
        return True

    async def fence(
        self, cluster: UpstreamCluster, transactional_id: str, identity: Identity, timeout_ms: int
    ) -> Identity | None:
        self._reach(cluster)
        known = self.states_of[cluster.name]
        if known.identity != identity:
            return None
        following = Identity(identity.producer_id, identity.epoch + 1)
        self.states_of[cluster.name] = replace(known, identity=following, state="Empty")
        self.done.append(("fence", cluster.name, identity))
        return following


class MemoryJournal:
    """The part of the journal that ends of transactions need."""

    def __init__(self) -> None:
        self.view = SimpleNamespace(state=SimpleNamespace(effective=RoutingTable(1, CLUSTERS.values())))
        self.orders: list[events.TransactionEndOrdered] = []
        self.answer: StoredAnswer | None = None

    async def first_time(self, caller: Caller) -> SimpleNamespace:
        if self.answer is not None and caller.request_id == self.answer.request_id:
            raise AlreadyAnswered(self.answer)
        return self.view

    async def append(
        self, drafts: Sequence[Draft], caller: Caller, view: Any, *, rests_on: Any, answer: Any
    ) -> list[events.Event]:
        (draft,) = drafts
        self.orders.append(cast("events.TransactionEndOrdered", draft.payload))
        event = events.Event(position=11 + len(self.orders), stream=draft.stream)
        self.answer = answer([event], None)
        return [event]


def operating(clusters: Clusters) -> tuple[Transactions, MemoryJournal]:
    journal = MemoryJournal()
    return Transactions(cast("Journal", journal), cast("TransactionCoordinators", clusters)), journal


def both_open() -> Clusters:
    return Clusters({"c1": AT_HOME, "c2": ON_C2})


async def test_an_abort_begins_where_is_decided_and_fences_the_producer() -> None:
    clusters = both_open()
    operator, journal = operating(clusters)
    answer = await operator.abort(ID, ADA)
    assert clusters.done == [
        ("abort", "c1", HOME), ("fence", "c1", HOME), ("abort", "c2", PART), ("fence", "c2", PART),
    ]  # fmt: skip
    assert (answer.revision, answer.outcome) == (12, "aborted on c1, c2; its producer is fenced")
    (order,) = journal.orders
    assert (order.transactional_id, order.commit, order.home_cluster) == (ID, False, "c1")
    assert [part.cluster for part in order.parts] == ["c1", "c2"]


async def test_what_is_decided_is_not_aborted_but_finished() -> None:
    clusters = Clusters({"c1": COMMITTED_AT_HOME, "c2": ON_C2}, [DECISION])
    operator, journal = operating(clusters)
    with pytest.raises(NotAllowed, match=r"is decided: committed by producer 7 \(epoch 3\) on c1") as refused:
        await operator.abort(ID, ADA)
    assert refused.value.message.endswith("Finish it instead")
    assert (clusters.done, journal.orders) == ([], [])
    answer = await operator.finish(ID, ADA)
    assert answer.outcome == "committed on c2"
    assert clusters.done == [("commit", "c2", PART)]


async def test_what_is_not_decided_is_not_finished() -> None:
    clusters = both_open()
    operator, journal = operating(clusters)
    with pytest.raises(NotAllowed, match=r"is not decided, and open on c1, c2\. Abort it instead"):
        await operator.finish(ID, ADA)
    assert (clusters.done, journal.orders) == ([], [])


@pytest.mark.parametrize("word", ["CompleteCommit", "PrepareCommit"])
async def test_a_commit_that_comes_before_the_abort_at_home_leaves_all_parts_alone(word: str) -> None:
    clusters = both_open()

    def home_commits(cluster: str) -> None:
        clusters.states_of["c1"] = replace(AT_HOME, state=word)
        clusters.decisions = [DECISION]

    clusters.before = home_commits
    operator, _ = operating(clusters)
    with pytest.raises(Conflict, match="has ended on c1, which decides, before it could be aborted"):
        await operator.abort(ID, ADA)
    assert clusters.done == []
    assert clusters.states_of["c2"] == ON_C2


async def test_a_part_that_was_decided_while_home_was_fenced_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first protocol an identity goes through many transactions: home had nothing open when it was read."""
    clusters = Clusters({"c1": state(HOME, "CompleteAbort"), "c2": ON_C2})
    operator, _ = operating(clusters)
    fence = clusters.fence

    async def decided_before(cluster: UpstreamCluster, *more: Any) -> Identity | None:
        if cluster.name == "c1":
            clusters.decisions = [DECISION]
        return await fence(cluster, *more)

    monkeypatch.setattr(clusters, "fence", decided_before)
    answer = await operator.abort(ID, ADA)
    assert ("commit", "c2", PART) in clusters.done
    assert ("abort", "c2", PART) not in clusters.done
    assert answer.outcome == "nothing was left to abort; committed on c2, as was decided before"


@pytest.mark.parametrize("away", ["c1", "c2"])
async def test_nothing_is_ended_while_a_cluster_may_have_decided_and_can_not_be_asked(away: str) -> None:
    clusters = both_open()
    clusters.away = {away}
    operator, journal = operating(clusters)
    for end in (operator.abort, operator.finish):
        with pytest.raises(Unavailable, match=f"cluster '{away}' does not answer: down. Retry when all clusters"):
            await end(ID, ADA)
    assert (clusters.done, journal.orders) == ([], [])


async def test_a_cluster_that_goes_away_in_an_abort_is_named_and_the_same_request_goes_on() -> None:
    clusters = both_open()

    def leave(cluster: str) -> None:
        clusters.away = {"c2"} if cluster == "c2" else set()

    clusters.before = leave
    operator, journal = operating(clusters)
    who = replace(ADA, request_id="6f2d4c51-1a35-4b43-8f42-9f61d7d5a6c0")
    with pytest.raises(Unavailable, match="ordered, and not carried out everywhere: cluster 'c2' does not answer"):
        await operator.abort(ID, who)
    clusters.before, clusters.away = lambda _: None, set()
    answer = await operator.abort(ID, who)
    assert (answer.revision, answer.outcome) == (12, "aborted on c2; its producer is fenced")
    assert len(journal.orders) == 1
    again = await operator.abort(ID, who)
    assert (again.revision, again.outcome) == (12, "was done before")


async def test_an_only_part_that_is_committed_is_finished_at_home() -> None:
    only_registered = CoordinatorState(HOME, "Ongoing", TIMEOUT_MS, 1_000, REGISTERED)
    committed = state(Identity(PART.producer_id, PART.epoch + 1), "CompleteCommit")
    clusters = Clusters({"c1": only_registered, "c2": committed})
    operator, _ = operating(clusters)
    with pytest.raises(NotAllowed, match="committed on c2, its only part"):
        await operator.abort(ID, ADA)
    answer = await operator.finish(ID, ADA)
    assert answer.outcome == "committed on c1"
    assert clusters.done == [("commit", "c1", HOME)]


async def test_an_id_that_no_cluster_knows_is_unknown() -> None:
    operator, _ = operating(Clusters({}))
    with pytest.raises(Unknown, match="no cluster knows the transactional id 'payments-1'"):
        await operator.abort(ID, ADA)


async def test_open_transactions_are_listed_and_a_cluster_that_is_away_is_named() -> None:
    clusters = both_open()
    operator, _ = operating(clusters)
    found, away = await operator.open("pay", ended=False)
    assert [(each.transactional_id, list(each.states)) for each in found] == [(ID, ["c1", "c2"])]
    assert away == {}
    assert (await operator.open("other", ended=False))[0] == []
    clusters.away = {"c2"}
    found, away = await operator.open("", ended=False)
    assert list(found[0].states) == ["c1"]
    assert list(away) == ["c2"]
