"""TransactionService: transactions over all clusters, and their end by an operator."""

from __future__ import annotations

from typing import Any

from mesh.rpc import transactions, transactions_grpc
from mesh.transactions import TRANSACTIONS_TOPIC
from services.control.api import pages
from services.control.api.calls import caller
from services.control.decisions.transactions.transactions import Transactions, late, now_ms
from services.control.domain.errors import InvalidField
from services.control.domain.transactions.transactions import (
    TRANSACTIONS,
    CoordinatorState,
    SeenTransaction,
    Standing,
    in_order,
)
from services.control.store.journal import Journal
from services.control.upstream.transactions import TransactionCoordinators

STATES = {
    Standing.UNDECIDED: transactions.TRANSACTION_STATE_UNDECIDED,
    Standing.DECIDED: transactions.TRANSACTION_STATE_DECIDED,
    Standing.ENDING: transactions.TRANSACTION_STATE_ENDING,
    Standing.ENDED: transactions.TRANSACTION_STATE_ENDED,
}
OPEN = frozenset(STATES.values()) - {transactions.TRANSACTION_STATE_ENDED}


class TransactionService(transactions_grpc.TransactionServiceServicer):
    """See TransactionService in transactions.proto."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._transactions = Transactions(journal, TransactionCoordinators())

    async def ListTransactions(
        self, request: transactions.ListTransactionsRequest, context: Any
    ) -> transactions.ListTransactionsResponse:
        self._journal.require_loaded()
        older_than_ms = _older_than_ms(request)
        states = frozenset(request.states) or OPEN
        if transactions.TRANSACTION_STATE_UNSPECIFIED in states:
            raise InvalidField("states", "TRANSACTION_STATE_UNSPECIFIED is none; an empty list means all open ones")
        ended = transactions.TRANSACTION_STATE_ENDED in states
        found, away = await self._transactions.open(request.id_prefix, ended=ended)
        found = [each for each in in_order(found) if STATES[each.standing] in states]
        if request.hanging or older_than_ms is not None:
            found = late(found, older_than_ms)
        keys = [each.transactional_id for each in found]
        page, token = pages.cut("transactions", found, keys, request.page_size, request.page_token)
        return transactions.ListTransactionsResponse(
            transactions=[_shape(each) for each in page], next_page_token=token, problems=away.values()
        )

    async def GetTransaction(
        self, request: transactions.GetTransactionRequest, context: Any
    ) -> transactions.Transaction:
        self._journal.require_loaded()
        seen = await self._transactions.look(_id_of(request.name))
        seen.require_known()
        return _shape(seen)

    async def FinishTransaction(
        self, request: transactions.FinishTransactionRequest, context: Any
    ) -> transactions.EndTransactionResponse:
        self._journal.require_loaded()
        transactional_id = _id_of(request.name)
        who = caller(request, request.request_id, request.reason)
        return await self._told(transactional_id, await self._transactions.finish(transactional_id, who))

    async def AbortTransaction(
        self, request: transactions.AbortTransactionRequest, context: Any
    ) -> transactions.EndTransactionResponse:
        self._journal.require_loaded()
        transactional_id = _id_of(request.name)
        who = caller(request, request.request_id, request.reason)
        return await self._told(transactional_id, await self._transactions.abort(transactional_id, who))

    async def _told(
        self, transactional_id: str, answer: transactions.EndTransactionResponse
    ) -> transactions.EndTransactionResponse:
        answer.transaction.CopyFrom(_shape(await self._transactions.look(transactional_id)))
        return answer


def _id_of(name: str) -> str:
    """The transactional id in a resource name. An id may hold any character, "/" too."""
    collection, _, transactional_id = name.partition("/")
    if collection != TRANSACTIONS or not transactional_id:
        raise InvalidField("name", f"{name!r} is not a resource name of the form {TRANSACTIONS}/ID")
    return transactional_id


def _older_than_ms(request: transactions.ListTransactionsRequest) -> int | None:
    if not request.HasField("older_than"):
        return None
    milliseconds = request.older_than.ToMilliseconds()
    if milliseconds < 0:
        raise InvalidField("older_than", "is negative; say how long a transaction has been open")
    return milliseconds


def _shape(seen: SeenTransaction) -> transactions.Transaction:
    waiting = {cluster for undone in seen.undone for cluster in undone.open_parts}
    shape = transactions.Transaction(
        name=seen.name,
        transactional_id=seen.transactional_id,
        state=STATES[seen.standing],
        home_cluster=seen.home,
        parts=[
            _part(cluster, seen.states[cluster], waits=cluster in waiting)
            for cluster in sorted(seen.states, key=lambda cluster: (cluster != seen.origin, cluster))
        ],
        hanging=seen.is_late(now_ms()),
        decision=seen.decision_text,
        problems=seen.unasked.values(),
    )
    if seen.started_ms is not None:
        shape.start_time.FromMilliseconds(seen.started_ms)
    return shape


def _part(cluster: str, state: CoordinatorState, *, waits: bool) -> transactions.TransactionPart:
    part = transactions.TransactionPart(
        cluster=cluster,
        producer_id=state.identity.producer_id,
        producer_epoch=state.identity.epoch,
        state=state.state,
        topics=[
            transactions.TransactionTopic(topic=topic, partitions=numbers)
            for topic, numbers in sorted(state.topics.items())
            if topic != TRANSACTIONS_TOPIC
        ],
        waits_for_commit=waits,
    )
    part.timeout.FromMilliseconds(state.timeout_ms)
    if state.is_open and state.started_ms >= 0:
        part.start_time.FromMilliseconds(state.started_ms)
    return part
