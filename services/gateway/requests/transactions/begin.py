"""InitProducerId with a transactional id: the coordinator at its home gives the producer's identity.

Theory of operation
1. A transactional id is one producer, on whichever clusters it was before. The gateway fences the previous producer
   with an InitProducerId on every cluster that knows the id. A transaction that the previous producer had decided to
   commit is committed first (`decisions`); any other open transaction is aborted.
2. An unreachable cluster keeps no producer from beginning. A note in home's log says that the previous producer must be
   fenced on that cluster before the new producer's first record there (`parts`).
3. A producer may name its old identity, to continue after an error (KIP-360). The cluster that gave this identity
   checks it: a new home does not know the identity, and would accept a producer that was replaced.
4. If a cluster has an open part, or can't be asked, the gateway first settles the written decisions about the id. Home
   can't tell their outcome any more once it has given the next identity.
5. Home fences first, the other clusters after it. A producer that comes to a cluster later asks home, and learns that
   it was replaced. By then home has committed or aborted the open transaction, so every decision is in the log.
"""

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

import structlog

from mesh.transactions import OPEN, Identity
from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.transactions.decisions import end_note, settle, write_note
from services.gateway.requests.transactions.home import takes_part, transaction_home
from services.gateway.requests.transactions.log_reading import read_log, read_logs
from services.gateway.requests.transactions.parts import FENCED_SOON, init_producer, take_over
from services.gateway.requests.transactions.state import Producer
from services.gateway.requests.transactions.survey import survey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = structlog.get_logger(__name__)


def begin(
    message: InitProducerIdRequest, transactional_id: str, version: int, mesh: MeshView
) -> Generator[Command, Any, InitProducerIdResponse]:
    home = transaction_home(transactional_id, mesh)
    if home is None:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elsewhere = [cluster for cluster in mesh.table.clusters if cluster != home]
    error = yield from _settle(transactional_id, home, elsewhere, mesh)
    if error:
        return _failed(error)
    if message.producer_id >= 0 and elsewhere:
        moved = yield from _moved(message, transactional_id, version, home, mesh)
        if isinstance(moved, InitProducerIdResponse):
            return moved
        message = moved
    outcome = yield from init_producer(home, transactional_id, message, version, mesh)
    if outcome.error_code or not elsewhere:
        return outcome
    fenced: dict[str, Identity] = {}
    left = yield from survey(transactional_id, elsewhere, mesh)
    for cluster, state in left.items():
        identity = yield from _fence(cluster, state, transactional_id, message.transaction_timeout_ms, mesh)
        if identity is FENCED_SOON:
            return _failed(FENCED_SOON)
        if isinstance(identity, Identity):
            fenced[cluster] = identity
    if left and takes_part(home, mesh):  # the transactions of an older home reach no other cluster
        error = yield from _note(transactional_id, left.keys() - fenced.keys(), fenced, home, mesh)
        if error:
            return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    at_home = Identity(outcome.producer_id, outcome.producer_epoch)
    mesh.memory.producers.put(transactional_id, Producer(home, at_home, fenced), mesh.now)
    return outcome


def _settle(
    transactional_id: str, home: str, elsewhere: Iterable[str], mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Settles what is written about the id. A log of another cluster than home that can't be read is left: that cluster
    keeps what it knows."""
    there = yield from survey(transactional_id, elsewhere, mesh)
    if not any(isinstance(state, Unreachable) or state.transaction_state in OPEN for state in there.values()):
        return ErrorCode.NONE
    logs = yield from read_logs([cluster for cluster in mesh.table.clusters if takes_part(cluster, mesh)], mesh)
    for cluster, found in logs.items():
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if found is not None:
            error = yield from settle(cluster, found, transactional_id, mesh)
        if error and cluster == home:
            return error
    return ErrorCode.NONE


def _fence(
    cluster: str, state: TransactionState | Unreachable, transactional_id: str, timeout_ms: int, mesh: MeshView
) -> Generator[Command, Any, Identity | ErrorCode]:
    """The producer's new identity there."""
    if isinstance(state, Unreachable):
        _tell_unfenced(transactional_id, cluster, state.reason)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    decided_on = mesh.table.clusters if state.transaction_state in OPEN else ()
    found = yield from take_over(cluster, transactional_id, timeout_ms, decided_on, mesh)
    if isinstance(found, ErrorCode) and found is not FENCED_SOON:
        _tell_unfenced(transactional_id, cluster, error_name(found))
    return found


def _note(
    transactional_id: str, unfenced: Iterable[str], fenced: Iterable[str], home: str, mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Notes in home's log the clusters where the producer must be fenced before its first record; ends old notes."""
    known = yield from read_log(home, mesh)
    if known is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    for cluster in unfenced:
        if not known.is_unfenced(transactional_id, cluster):
            error = yield from write_note(home, transactional_id, cluster, mesh)
            if error:
                return error
    for cluster in fenced:
        if known.is_unfenced(transactional_id, cluster):
            error = yield from end_note(home, transactional_id, cluster, mesh)
            if error:
                return error
    return ErrorCode.NONE


def _moved(
    message: InitProducerIdRequest, transactional_id: str, version: int, home: str, mesh: MeshView
) -> Generator[Command, Any, InitProducerIdRequest | InitProducerIdResponse]:
    """The request as the id's home can answer it. An identity from another cluster is given up there first."""
    known = yield from survey(transactional_id, mesh.table.clusters, mesh)
    origin = next((c for c in (home, *known) if _is_of(message.producer_id, known.get(c))), None)
    if origin is None or origin == home:
        return message
    given_up = yield from init_producer(origin, transactional_id, message, version, mesh)
    if given_up.error_code:
        return given_up
    log.info("a transactional id has moved", transactional_id=transactional_id, was_on=origin, is_on=home)
    return replace(message, producer_id=-1, producer_epoch=-1)


def _is_of(producer_id: int, state: TransactionState | Unreachable | None) -> bool:
    return isinstance(state, TransactionState) and state.producer_id == producer_id


def _failed(error: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def _tell_unfenced(transactional_id: str, cluster: str, reason: str) -> None:
    log.warning(
        "a producer is fenced on a cluster before its first record there: it could not be done when it began",
        transactional_id=transactional_id,
        cluster=cluster,
        reason=reason,
    )
