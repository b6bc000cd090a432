"""EndTxn: commit or abort, by the coordinator at the transactional id's home.

A transaction ends where it began. If its id has moved meanwhile, the new home does not know the producer: then the
cluster that does is asked. With the second protocol (KIP-890) the answer names the producer's next identity, which is
one at the new home already; with the first the producer asks for one when it hears that the home does not know it.
"""

from collections.abc import Generator
from typing import Any

import structlog

from services.gateway.requests.plan import Command, MeshView, Plan, Request
from services.gateway.requests.transactions.begin import INIT_VERSION, init_producer
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.end_spanning import NEXT_IDENTITY_SINCE, end_spanning
from services.gateway.requests.transactions.home import spans_clusters, transaction_home
from services.gateway.requests.transactions.survey import survey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest

NOT_MINE = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""What a coordinator says to an identity that it has not given."""

log = structlog.get_logger(__name__)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(EndTxnRequest)
    transactional_id = message.transactional_id
    home = transaction_home(transactional_id, mesh)
    if home is None:
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer = mesh.memory.spanning.get(transactional_id, mesh.now)
    # what began under a rule that let it span clusters ends on all of them, whatever the rule says now
    began_so = producer is not None and producer.identity == (message.producer_id, message.producer_epoch)
    if began_so or spans_clusters(transactional_id, mesh):
        return (yield from end_spanning(message, request.version, home, mesh))
    outcome = yield from _end_on(home, message, request.version, mesh)
    if outcome.error_code in NOT_MINE and len(mesh.table.clusters) > 1:
        return (yield from _end_at_origin(message, request.version, home, outcome, mesh))
    return outcome


def _end_on(
    cluster: str, message: EndTxnRequest, version: int, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    """As the coordinator there answers; but an abort of nothing is done.

    With the first protocol librdkafka sends one after its first partition was refused. Coordinators answer
    INVALID_TXN_STATE to who has nothing to abort, and librdkafka dies of it.
    """
    coordinator = coordinator_of(message.transactional_id)
    outcome = yield from ask_coordinator(cluster, coordinator, message, version, EndTxnResponse, mesh)
    ended = EndTxnResponse(error_code=outcome) if isinstance(outcome, ErrorCode) else outcome
    nothing = ended.error_code == ErrorCode.INVALID_TXN_STATE and not message.committed
    return EndTxnResponse() if nothing and version < NEXT_IDENTITY_SINCE else ended


def _end_at_origin(
    message: EndTxnRequest, version: int, home: str, refused: EndTxnResponse, mesh: MeshView
) -> Generator[Command, Any, EndTxnResponse]:
    """By the other cluster that knows the producer; what home said where there is none."""
    known = yield from survey(message.transactional_id, (c for c in mesh.table.clusters if c != home), mesh)
    for cluster, state in known.items():
        if isinstance(state, TransactionState) and state.producer_id == message.producer_id:
            ended = yield from _end_on(cluster, message, version, mesh)
            if ended.error_code:
                return ended
            log.info(
                "a transaction has ended where it began, its transactional id has moved",
                transactional_id=message.transactional_id,
                was_on=cluster,
                is_on=home,
            )
            if version >= NEXT_IDENTITY_SINCE:
                yield from _move(ended, message.transactional_id, state.transaction_timeout_ms, home, mesh)
            return ended
    return refused


def _move(
    ended: EndTxnResponse, transactional_id: str, timeout_ms: int, home: str, mesh: MeshView
) -> Generator[Command, Any, None]:
    """Give the producer an identity at its new home; if that can't be now, the end of its next transaction does it."""
    first = InitProducerIdRequest(transactional_id, timeout_ms)
    moved = yield from init_producer(home, transactional_id, first, INIT_VERSION, mesh)
    if not moved.error_code:
        ended.producer_id, ended.producer_epoch = moved.producer_id, moved.producer_epoch
