"""EndTxn: commit or abort, on every cluster that has a part of the transaction.

Theory of operation
1. Home's coordinator says which producer may end the transaction, and which clusters have a part (`registry`). If no
   other cluster has a part, the gateway sends the request to home unchanged.
2. Home decides a commit over several clusters: the gateway writes a record with all parts into the transaction there
   (`decisions`), home commits, then all other clusters commit. Before that the gateway checks each part. A part must be
   open under the registered identity. When the record is written, it must still have time left before its broker aborts
   it (home's own commit decides).
   The record also has the last stable offsets that readers are shown until all clusters have committed (`holding`).
3. A transaction with one part, on another cluster than home, needs no decision: that cluster commits first, home last,
   so home must have time left, too. Every abort has the same order: home stays open until all others are done.
4. A client asks again when it missed an answer or its gateway died. If the transaction at home is still open, the
   gateway continues. If home has committed, the gateway commits each decided part that is still open. The client gets
   success when all parts are done.
5. Nothing is decided while a cluster with a part is unreachable: the client retries. Nothing is decided either if a
   part is missing, or short of time: the client gets an error that makes it abort.
6. A transaction ends on the cluster where it began. If its id has moved meanwhile, the new home does not know the
   producer: the gateway asks the cluster that does. With the second protocol (KIP-890) the answer names the producer's
   next identity, which is already from the new home. With the first protocol the producer asks for a new identity when
   the home answers that it does not know the producer.
"""

from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import structlog

from mesh.transactions import EPOCHS, ONGOING, SECOND_PROTOCOL_SINCE, Decision, Identity, Part, was_committed
from services.gateway.requests.plan import Command, MeshView, Plan, Request, Unreachable
from services.gateway.requests.together import together
from services.gateway.requests.transactions.coordinator import ask_coordinator, ask_coordinators, coordinator_of
from services.gateway.requests.transactions.decisions import (
    commit_parts,
    end_decision,
    finish_all,
    prepare_decision,
    write_decision,
)
from services.gateway.requests.transactions.home import takes_part, transaction_home
from services.gateway.requests.transactions.parts import INIT_VERSION, init_producer, remembered
from services.gateway.requests.transactions.registry import registered_parts, writes_at_home
from services.gateway.requests.transactions.stable_offsets import stable_offsets
from services.gateway.requests.transactions.state import Ended, Producer
from services.gateway.requests.transactions.survey import identity_of, short_of_time, survey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest

ABORTABLE_SINCE: Final = 4
"""The first version in which a commit can be refused so that every client aborts and goes on."""
NOT_MINE: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""Errors of a coordinator for an identity that it has not given."""

log = structlog.get_logger(__name__)

States = Mapping[str, TransactionState | Unreachable]


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(EndTxnRequest)
    home = transaction_home(message.transactional_id, mesh)
    if home is None:
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if len(mesh.table.clusters) == 1:
        return (yield from _end_on(home, message, request.version, mesh))
    presented = Identity(message.producer_id, message.producer_epoch)
    producer = mesh.memory.producers.get(message.transactional_id, mesh.now)
    if producer is not None and producer.identity != presented:
        if (producer.home, producer.ended) == (home, (presented, message.committed)):  # its client missed the answer
            return _answer(producer.identity)
        producer = None
    known = yield from survey(message.transactional_id, (home, *_likely_parts(producer, mesh)), mesh, own_names=True)
    at_home = known.get(home)
    if isinstance(at_home, Unreachable):
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    begun_on = home
    if takes_part(home, mesh) and (at_home is None or at_home.producer_id != presented.producer_id):
        known = yield from survey(message.transactional_id, mesh.table.clusters, mesh, own_names=True)
        begun_on = _origin(known, presented) or home
        at_home = known.get(begun_on)
    if isinstance(at_home, TransactionState) and identity_of(at_home) == presented:
        if at_home.transaction_state == ONGOING:
            ended = yield from _end_parts(message, request.version, begun_on, at_home, known, mesh)
        else:
            ended = yield from _end_again(message, request.version, begun_on, mesh)
    else:
        ended = yield from _end_again(message, request.version, begun_on, mesh)
        if ended.error_code in NOT_MINE and not takes_part(home, mesh):
            return (yield from _end_at_origin(message, request.version, home, ended, mesh))
    if begun_on != home and not ended.error_code and isinstance(at_home, TransactionState):
        return (yield from _move(ended, message, request.version, begun_on, at_home.transaction_timeout_ms, home, mesh))
    return ended


def _likely_parts(producer: Producer | None, mesh: MeshView) -> AbstractSet[str]:
    """Clusters other than home that are asked at once, before home has named those with a part."""
    if producer is None:
        return frozenset()
    return producer.parts | {c for c in producer.parts_before if c in mesh.clusters and mesh.clusters[c].available}


def _origin(known: States, presented: Identity) -> str | None:
    """The cluster whose identity the producer uses, or used until an answer was lost, if a rule has moved its home."""
    there = {cluster: identity_of(s) for cluster, s in known.items() if isinstance(s, TransactionState)}
    following = presented._replace(epoch=presented.epoch + 1)
    return next((c for identity in (presented, following) for c, found in there.items() if found == identity), None)


def _end_on(
    cluster: str, message: EndTxnRequest, version: int, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    """The answer of the coordinator there. The answer to an abort is never softened: INVALID_TXN_STATE may mean a
    commit."""
    coordinator = coordinator_of(message.transactional_id)
    outcome = yield from ask_coordinator(cluster, coordinator, message, version, EndTxnResponse, mesh)
    return EndTxnResponse(error_code=outcome) if isinstance(outcome, ErrorCode) else outcome


def _end_again(
    message: EndTxnRequest, version: int, home: str, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    """Asks home, which has nothing open for this identity. Its coordinator distinguishes a client that missed an answer
    from a producer that was replaced."""
    ended = yield from _end_on(home, message, version, mesh)
    if ended.error_code or not message.committed:
        return ended
    error = yield from finish_all(message.transactional_id, (home,), mesh)
    return EndTxnResponse(error_code=error) if error else ended


def _end_parts(
    message: EndTxnRequest, version: int, home: str, at_home: TransactionState, known: States, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    """Ends the transaction on all clusters that are registered at home."""
    registered = registered_parts(at_home, mesh)
    missing = [cluster for cluster in registered if cluster and cluster not in known]
    if missing:
        known = {**known, **(yield from survey(message.transactional_id, missing, mesh, own_names=True))}
    states = {cluster: known.get(cluster) for cluster in registered}
    away = sorted(cluster for cluster, state in states.items() if isinstance(state, Unreachable))
    if away:
        _tell("waits: a cluster that has a part of it can't be asked", message, away=away)
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    there = {cluster: state for cluster, state in states.items() if isinstance(state, TransactionState)}
    producer = remembered(message.transactional_id, identity_of(at_home), home, mesh)
    producer.elsewhere |= {cluster: identity_of(state) for cluster, state in there.items()}
    sole = len(registered) == 1 and not writes_at_home(at_home)
    if not message.committed:
        if sole and _was_committed(registered, there, version, at_home.transaction_start_time_ms):
            _tell("abort refused: it is committed", message, parts=sorted(there))
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        ended = yield from _abort(message, version, home, registered, there, mesh)
    elif sole:
        ended = yield from _commit_sole(message, version, home, at_home, registered, there, mesh)
    elif registered:
        ended = yield from _commit_all(message, version, home, at_home, registered, there, mesh)
    else:
        ended = {home: (yield from _end_on(home, message, version, mesh))}
    return _settled(message, home, ended, mesh)


Ends = dict[str, EndTxnResponse]
"""By cluster; home is among them, with the answer for the client."""


def _settled(message: EndTxnRequest, home: str, ended: Ends, mesh: MeshView) -> EndTxnResponse:
    """The answer. The gateway remembers the identities with which the next transaction begins."""
    answer = ended[home]
    if not answer.error_code:
        presented = Identity(message.producer_id, message.producer_epoch)
        before = remembered(message.transactional_id, presented, home, mesh)
        elsewhere = before.elsewhere | {
            cluster: Identity(end.producer_id, end.producer_epoch)
            for cluster, end in ended.items()
            if cluster != home and end.producer_id >= 0
        }
        named = answer.producer_id >= 0
        following = Identity(answer.producer_id, answer.producer_epoch) if named else presented
        done, parts = Ended(presented, message.committed), frozenset(ended) - {home}
        after = Producer(home, following, elsewhere, ended=done, parts_before=parts)
        mesh.memory.producers.put(message.transactional_id, after, mesh.now)
    return answer


def _abort(
    message: EndTxnRequest,
    version: int,
    home: str,
    registered: Mapping[str, set[int]],
    there: Mapping[str, TransactionState],
    mesh: MeshView,
) -> Generator[Command, Any, Ends]:
    """By the second protocol, an abort of nothing raises the producer's epoch. So a part that is not open yet is
    aborted too: a record that is still on its way there must not join the next transaction."""
    second = version >= SECOND_PROTOCOL_SINCE
    parts = {
        cluster: state
        for cluster, state in there.items()
        if state.transaction_state == ONGOING or (second and registered[cluster] == {state.producer_epoch % EPOCHS})
    }
    ended = yield from _end(message, version, parts, mesh)
    waits = next((end for end in ended.values() if ErrorCode(end.error_code).retriable), None)
    if waits is not None:
        return {home: EndTxnResponse(error_code=waits.error_code)}
    return ended | {home: (yield from _end_on(home, message, version, mesh))}


def _end(
    message: EndTxnRequest, version: int, parts: Mapping[str, TransactionState], mesh: MeshView
) -> Generator[Command, Any, Ends]:
    messages = {
        cluster: EndTxnRequest(message.transactional_id, *identity_of(state), message.committed)
        for cluster, state in parts.items()
    }
    coordinator = coordinator_of(message.transactional_id)
    outcomes = yield from ask_coordinators(messages, coordinator, version, EndTxnResponse, mesh)
    return {
        cluster: EndTxnResponse(error_code=outcome) if isinstance(outcome, ErrorCode) else outcome
        for cluster, outcome in outcomes.items()
    }


def _commit_sole(
    message: EndTxnRequest,
    version: int,
    home: str,
    at_home: TransactionState,
    registered: Mapping[str, set[int]],
    there: Mapping[str, TransactionState],
    mesh: MeshView,
) -> Generator[Command, Any, Ends]:
    """All of the transaction is on one cluster, which is not home."""
    (cluster,) = registered
    state = there.get(cluster)
    ended: Ends = {}
    if state is None or not _is_committed(state, registered[cluster], version):
        fault = _missing(registered, there) or short_of_time({home: at_home, **there}, mesh)
        if fault is not None:
            return _refuse(message, version, home, fault, there)
        ended = yield from _end(message, version, there, mesh)
        error = ErrorCode(ended[cluster].error_code)
        if error.retriable or error is ErrorCode.UNSUPPORTED_VERSION:
            return {home: EndTxnResponse(error_code=error)}
        if error:
            return _refuse(message, version, home, f"{cluster} answers {error_name(error)}", there)
    return ended | {home: (yield from _end_on(home, message, version, mesh))}


def _is_committed(state: TransactionState, registered: set[int], version: int) -> bool:
    """Whether the part is committed already, by a gateway that did not get to end the transaction at home."""
    second = version >= SECOND_PROTOCOL_SINCE
    return was_committed(state.transaction_state, state.producer_epoch, registered, second_protocol=second)


def _was_committed(
    registered: Mapping[str, set[int]], there: Mapping[str, TransactionState], version: int, begun_ms: int
) -> bool:
    """Whether the only part is committed, and home has not heard of the commit.

    By the first protocol a producer keeps its epoch, so the part must have begun after home did. The clocks of the two
    clusters decide about that.
    """
    (cluster,) = registered
    state = there.get(cluster)
    if state is None or not _is_committed(state, registered[cluster], version):
        return False
    return version >= SECOND_PROTOCOL_SINCE or state.transaction_start_time_ms >= begun_ms


def _commit_all(
    message: EndTxnRequest,
    version: int,
    home: str,
    at_home: TransactionState,
    registered: Mapping[str, set[int]],
    there: Mapping[str, TransactionState],
    mesh: MeshView,
) -> Generator[Command, Any, Ends]:
    fault = _missing(registered, there)
    if fault is not None:
        return _refuse(message, version, home, fault, there)
    parts = {cluster: Part(identity_of(state), state.transaction_start_time_ms) for cluster, state in there.items()}
    presented = Identity(message.producer_id, message.producer_epoch)
    stable, sequence = yield from together(
        stable_offsets({home: at_home, **there}, mesh),
        prepare_decision(home, message.transactional_id, presented, version, mesh),
    )
    if isinstance(sequence, ErrorCode):
        return _undecided(home, sequence)
    decision = Decision(message.transactional_id, presented, version, parts, stable)
    error = yield from write_decision(home, decision, sequence, mesh)
    if error:
        return _undecided(home, error)
    fault = short_of_time(there, mesh)
    if fault is not None:
        return _refuse(message, version, home, fault, there)
    answer = yield from _end_on(home, message, version, mesh)
    if answer.error_code:
        return {home: answer}
    following = yield from commit_parts(decision, {c: part.identity for c, part in parts.items()}, mesh)
    if isinstance(following, ErrorCode):
        _tell("is committed, and waits for a cluster to do so", message, parts=sorted(parts))
        return {home: EndTxnResponse(error_code=following)}
    yield from end_decision(home, decision, mesh)
    return {cluster: _answer(identity) for cluster, identity in following.items()} | {home: answer}


def _undecided(home: str, error: ErrorCode) -> Ends:
    known_to_all = error.retriable or error in NOT_MINE
    return {home: EndTxnResponse(error_code=error if known_to_all else ErrorCode.COORDINATOR_NOT_AVAILABLE)}


def _missing(registered: Mapping[str, set[int]], there: Mapping[str, TransactionState]) -> str | None:
    """Why the transaction can't be committed; None if all its parts are there."""
    for cluster, epochs in registered.items():
        state = there.get(cluster)
        if state is None:
            return f"{cluster or 'a cluster that has left the mesh'} knows nothing of its part"
        if state.transaction_state != ONGOING or epochs != {state.producer_epoch % EPOCHS}:
            return f"the part on {cluster} was aborted by its time-out"
    return None


def _refuse(message: EndTxnRequest, version: int, home: str, fault: str, there: Mapping[str, TransactionState]) -> Ends:
    _tell(f"commit refused: {fault}", message, parts={c: state.transaction_state for c, state in there.items()})
    abortable = version >= ABORTABLE_SINCE
    error = ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return {home: EndTxnResponse(error_code=error)}


def _end_at_origin(
    message: EndTxnRequest, version: int, home: str, refused: EndTxnResponse, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    """The end on the other cluster that knows the producer, if home is too old to be asked about it; else home's
    answer."""
    others = (c for c in mesh.table.clusters if c != home)
    known = yield from survey(message.transactional_id, others, mesh, own_names=True)
    for cluster, state in known.items():
        if isinstance(state, TransactionState) and state.producer_id == message.producer_id:
            ended = yield from _end_parts(message, version, cluster, state, known, mesh)
            if not ended.error_code:
                return (yield from _move(ended, message, version, cluster, state.transaction_timeout_ms, home, mesh))
            return ended
    return refused


def _move(
    ended: EndTxnResponse,
    message: EndTxnRequest,
    version: int,
    begun_on: str,
    timeout_ms: int,
    home: str,
    mesh: MeshView,
) -> Generator[Command, Any, EndTxnResponse]:
    """The answer with the producer's identity at its new home. If the new home is busy, the client has to retry; if it
    refuses, the end of the next transaction tries again."""
    transactional_id = message.transactional_id
    log.info(
        "a transaction has ended where it began, its transactional id has moved",
        transactional_id=transactional_id,
        was_on=begun_on,
        is_on=home,
    )
    if version < SECOND_PROTOCOL_SINCE:
        return ended
    first = InitProducerIdRequest(transactional_id, timeout_ms)
    moved = yield from init_producer(home, transactional_id, first, INIT_VERSION, mesh)
    if moved.error_code:
        return EndTxnResponse(error_code=moved.error_code) if ErrorCode(moved.error_code).retriable else ended
    following = Identity(moved.producer_id, moved.producer_epoch)
    done = Ended(Identity(message.producer_id, message.producer_epoch), message.committed)
    mesh.memory.producers.put(transactional_id, Producer(home, following, ended=done), mesh.now)
    return _answer(following)


def _answer(following: Identity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


def _tell(fact: str, message: EndTxnRequest, **more: object) -> None:
    log.warning(
        f"transaction over several clusters: {fact}",
        transactional_id=message.transactional_id,
        commit=message.committed,
        **more,
    )
