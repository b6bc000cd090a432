"""InitProducerId with a transactional id: the coordinator at its home gives the producer's identity.

Theory of operation
1. A transactional id is one producer, wherever it has been before. A transaction that it has left open on another
   cluster (its home has moved, or it spans clusters) is aborted, and its producer there fenced, by an InitProducerId.
2. A producer that names its old identity, to go on after an error (KIP-360), has it checked where it comes from: the
   new home has never heard of it and would take a producer that was replaced for the rightful one.
3. Home first, the others after: who comes to a cluster later than this asks at home, and finds itself replaced.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import structlog

from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import spans_clusters, transaction_home
from services.gateway.requests.transactions.state import Identity, Spanning
from services.gateway.requests.transactions.survey import OPEN, survey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

INIT_VERSION = 4
"""Of InitProducerId on our own account: the last version with the errors of the first protocol."""
FENCED_SOON = ErrorCode.CONCURRENT_TRANSACTIONS
"""The answer while a coordinator still aborts what was open: clients ask again."""

log = structlog.get_logger(__name__)


def begin(
    message: InitProducerIdRequest, transactional_id: str, version: int, mesh: MeshView
) -> Generator[Command, Any, InitProducerIdResponse]:
    home = transaction_home(transactional_id, mesh)
    if home is None:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elsewhere = [cluster for cluster in mesh.table.clusters if cluster != home]
    if message.producer_id >= 0 and elsewhere:
        moved = yield from _moved(message, transactional_id, version, home, mesh)
        if isinstance(moved, InitProducerIdResponse):
            return moved
        message = moved
    outcome = yield from init_producer(home, transactional_id, message, version, mesh)
    if outcome.error_code:
        return outcome
    fenced = yield from _fence(message, transactional_id, version, elsewhere, mesh)
    if isinstance(fenced, ErrorCode):
        return _failed(fenced)
    if spans_clusters(transactional_id, mesh):
        at_home = Identity(outcome.producer_id, outcome.producer_epoch)
        identities = {cluster: identity for cluster, identity in fenced.items() if identity is not None}
        # what could not be fenced may still be open, and is not this producer's: its first commit is refused
        beginning = {home: at_home} | identities if len(identities) == len(fenced) else None
        mesh.memory.spanning.put(transactional_id, Spanning(home, at_home, beginning), mesh.now)
    else:
        mesh.memory.spanning.drop(transactional_id)
    return outcome


def _fence(
    message: InitProducerIdRequest, transactional_id: str, version: int, clusters: Sequence[str], mesh: MeshView
) -> Generator[Command, Any, dict[str, Identity | None] | ErrorCode]:
    """Where the producer has been: its new identity by cluster, None where it could not be fenced. Where its
    transactions do not span clusters, only those count that have something open."""
    spans = spans_clusters(transactional_id, mesh)
    plain = replace(message, producer_id=-1, producer_epoch=-1)
    fenced: dict[str, Identity | None] = {}
    left = yield from survey(transactional_id, clusters, mesh)
    for cluster, state in left.items():
        if isinstance(state, Unreachable):
            fenced[cluster] = None
            _tell_unfenced(transactional_id, cluster, state.reason)
        elif spans or state.transaction_state in OPEN:
            outcome = yield from init_producer(cluster, transactional_id, plain, version, mesh)
            if outcome.error_code == FENCED_SOON:
                return FENCED_SOON
            if outcome.error_code:
                fenced[cluster] = None
                _tell_unfenced(transactional_id, cluster, error_name(outcome.error_code))
            else:
                fenced[cluster] = Identity(outcome.producer_id, outcome.producer_epoch)
    return fenced


def init_producer(
    cluster: str, transactional_id: str, message: InitProducerIdRequest, version: int, mesh: MeshView
) -> Generator[Command, Any, InitProducerIdResponse]:
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(cluster, coordinator, message, version, InitProducerIdResponse, mesh)
    return _failed(outcome) if isinstance(outcome, ErrorCode) else outcome


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
        "what a producer has left open on a cluster ends there by its time-out only",
        transactional_id=transactional_id,
        cluster=cluster,
        reason=reason,
    )
