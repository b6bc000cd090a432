"""EndTxn of a transaction that may span clusters; see `spanning` for why it goes this way."""

from collections.abc import Generator, Mapping
from typing import Any, Final

import structlog

from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.transactions.begin import INIT_VERSION, init_producer
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import spans_clusters
from services.gateway.requests.transactions.spanning import rightful
from services.gateway.requests.transactions.state import Ended, Identity, Spanning
from services.gateway.requests.transactions.survey import COMMITTED, EMPTY, ONGOING, identity_of, survey
from services.gateway.wire.errors import RETRIABLE, ErrorCode, error_name
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest

ABORTABLE_SINCE: Final = 4
"""The first version in which a commit can be refused so that every client aborts and goes on."""
NEXT_IDENTITY_SINCE: Final = 5
"""The first version of the second protocol: its answer names the identity for the next transaction."""

RETRIED: Final = RETRIABLE | {ErrorCode.UNSUPPORTED_VERSION}
"""Errors that say nothing about the part itself."""

log = structlog.get_logger(__name__)

States = Mapping[str, TransactionState]


def end_spanning(
    message: EndTxnRequest, version: int, home: str, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    presented = Identity(message.producer_id, message.producer_epoch)
    producer = mesh.memory.spanning.get(message.transactional_id, mesh.now)
    if producer is not None and _is_repeated(message.committed, presented, producer):
        return _answer(producer.identity)
    if producer is not None and producer.identity != presented:
        producer = None
    known = yield from survey(message.transactional_id, mesh.table.clusters, mesh)
    begun_on = _origin(known, presented, home if producer is None else producer.home)
    at_home = rightful(known.get(begun_on), presented)
    if at_home is ErrorCode.PRODUCER_FENCED and version >= NEXT_IDENTITY_SINCE:
        return (yield from _end_again(message, version, begun_on, known, mesh))
    if isinstance(at_home, ErrorCode):
        return EndTxnResponse(error_code=at_home)
    away = [cluster for cluster, state in known.items() if isinstance(state, Unreachable)]
    if away:
        _tell("waits: a cluster that may hold a part of it can't be asked", message, away=sorted(away))
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    states = {cluster: state for cluster, state in known.items() if isinstance(state, TransactionState)}
    if message.committed and (producer is None or producer.beginning is None):
        return _commit_of_others(message, version, states)
    lost = _lost_part(producer, begun_on, states) if message.committed else None
    if lost is not None:
        _tell(f"commit refused: the part on {lost} was aborted by its time-out", message, parts=_told(states))
        return _refused(version)
    ended = yield from _end_parts(message, version, begun_on, states, producer, mesh)
    if isinstance(ended, EndTxnResponse):
        return ended
    following = ended.get(begun_on, presented)
    if begun_on != home and version >= NEXT_IDENTITY_SINCE:
        first = InitProducerIdRequest(message.transactional_id, at_home.transaction_timeout_ms)
        moved = yield from init_producer(home, message.transactional_id, first, INIT_VERSION, mesh)
        if not moved.error_code:
            begun_on, following = home, Identity(moved.producer_id, moved.producer_epoch)
    beginning = {cluster: identity_of(state) for cluster, state in states.items()} | ended | {begun_on: following}
    if spans_clusters(message.transactional_id, mesh):
        done = Ended(presented, message.committed)
        after = Spanning(begun_on, following, beginning, ended=done)
        mesh.memory.spanning.put(message.transactional_id, after, mesh.now)
    else:
        mesh.memory.spanning.drop(message.transactional_id)
    return _answer(following)


def _is_repeated(committed: bool, presented: Identity, producer: Spanning) -> bool:
    """Whether a client asks again, having missed the answer with its next identity."""
    return producer.ended == (presented, committed) and producer.identity != presented


def _origin(known: Mapping[str, TransactionState | Unreachable], presented: Identity, home: str) -> str:
    """The cluster whose identity the producer goes by: its home, or where that was before a rule moved it."""
    at_home = known.get(home)
    if isinstance(at_home, Unreachable) or (at_home is not None and at_home.producer_id == presented.producer_id):
        return home
    others = (c for c, s in known.items() if isinstance(s, TransactionState) and identity_of(s) == presented)
    return next(others, home)


def _end_again(
    message: EndTxnRequest,
    version: int,
    home: str,
    known: Mapping[str, TransactionState | Unreachable],
    mesh: MeshView,
) -> Generator[Command, Any, EndTxnResponse]:
    """Of an identity before the one at home: the coordinator there tells who missed an answer from who was replaced."""
    coordinator = coordinator_of(message.transactional_id)
    outcome = yield from ask_coordinator(home, coordinator, message, version, EndTxnResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return EndTxnResponse(error_code=outcome)
    if not outcome.error_code and all(isinstance(state, TransactionState) for state in known.values()):
        following = Identity(outcome.producer_id, outcome.producer_epoch)
        beginning = {c: identity_of(s) for c, s in known.items() if isinstance(s, TransactionState)}
        producer = Spanning(home, following, beginning | {home: following})
        mesh.memory.spanning.put(message.transactional_id, producer, mesh.now)
    return outcome


def _commit_of_others(message: EndTxnRequest, version: int, states: States) -> EndTxnResponse:
    """A commit that comes to a gateway that was not asked when the transaction began: it can't know all parts.

    As long as something is open it becomes an abort. Else it may be done already, and only its answer was lost: then
    nobody must take it for aborted.
    """
    found = {state.transaction_state for state in states.values()}
    if ONGOING not in found and found & COMMITTED:
        if found <= COMMITTED | {EMPTY}:
            return EndTxnResponse()
        _tell("nobody can say any more whether it was committed", message, parts=_told(states))
        return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
    _tell("commit refused: this gateway was not asked when it began", message, parts=_told(states))
    return _refused(version)


def _lost_part(producer: Spanning | None, home: str, states: States) -> str | None:
    """The cluster where a part of the transaction was aborted; None if all parts are there, open or committed."""
    beginning = (producer.beginning if producer is not None else None) or {}
    for cluster, state in states.items():
        now = identity_of(state)
        then = beginning.get(cluster, Identity(now.producer_id, 0))
        committed = state.transaction_state in COMMITTED and now == (then.producer_id, then.epoch + 1)
        if cluster != home and now != then and not committed:
            return cluster
    return None


def _end_parts(
    message: EndTxnRequest, version: int, home: str, states: States, producer: Spanning | None, mesh: MeshView
) -> Generator[Command, Any, dict[str, Identity] | EndTxnResponse]:
    """End what is open, cluster by cluster, home last; the identities there afterwards, or the error for the client.

    One by one: what comes after a part that fails is still open, and can be aborted.
    """
    ended: dict[str, Identity] = {}
    open_parts = [cluster for cluster, state in states.items() if state.transaction_state == ONGOING]
    order = [cluster for cluster in open_parts if cluster != home]
    if home in open_parts or version >= NEXT_IDENTITY_SINCE:
        order.append(home)
    for cluster in order:
        identity = identity_of(states[cluster])
        committed = message.committed and cluster in open_parts
        part = EndTxnRequest(message.transactional_id, *identity, committed)
        coordinator = coordinator_of(message.transactional_id)
        outcome = yield from ask_coordinator(cluster, coordinator, part, version, EndTxnResponse, mesh)
        error = outcome if isinstance(outcome, ErrorCode) else outcome.error_code
        if error:
            if cluster == home or error in RETRIED:
                return EndTxnResponse(error_code=error)
            fact = f"a part could not be ended: {error_name(error)} on {cluster}"
            _tell(fact, message, parts=_told(states), ended=list(ended))
            if message.committed:
                return _refused(version)
        elif not isinstance(outcome, ErrorCode):
            following = Identity(outcome.producer_id, outcome.producer_epoch)
            ended[cluster] = following if following.producer_id >= 0 else identity
            if producer is not None and producer.beginning is not None:
                producer.beginning[cluster] = ended[cluster]
    return ended


def _refused(version: int) -> EndTxnResponse:
    known = version >= ABORTABLE_SINCE
    return EndTxnResponse(
        error_code=ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


def _answer(following: Identity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


def _told(states: States) -> dict[str, str]:
    return {cluster: state.transaction_state for cluster, state in states.items()}


def _tell(fact: str, message: EndTxnRequest, **more: object) -> None:
    log.warning(
        f"transaction over several clusters: {fact}",
        transactional_id=message.transactional_id,
        commit=message.committed,
        **more,
    )
