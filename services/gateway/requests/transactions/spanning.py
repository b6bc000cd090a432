"""Transactions over several clusters, atomic on each of them: only for transactional ids whose rule says so.

Theory of operation
1. The client goes by its identity at home. On any other cluster its records carry the identity that this cluster's
   coordinator gave (`records` patches them); an id is initialised there when it first comes (`identity_on`).
2. Who is rightful is decided at home. An identity is learnt from the other cluster first, and only used if the client's
   own is still the one at home after that: a producer that was replaced never writes under its successor's identity.
3. EndTxn goes to the clusters where something is open, home last: as long as home has not ended, an error elsewhere can
   still become an abort. With the second protocol (KIP-890) home ends even if nothing was open there: its next epoch
   tells all gateways that the identities elsewhere are new ones too.
4. Any gateway may be asked: it finds the identities on the clusters. But only the gateway that knew all of them when
   the transaction began can say at its end that nothing is missing. A part that has timed out meanwhile was aborted,
   which shows in its epoch: one that has gone on since the beginning, or one above 0 that was not there. Then, or when
   this gateway was not there at the beginning, a commit is refused; the abort that follows is a new beginning.
5. A cluster that can't be asked may hold a part: commit and abort wait for it (the client tries again).
"""

from collections.abc import Generator
from typing import Any

from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.transactions.begin import INIT_VERSION, init_producer
from services.gateway.requests.transactions.state import Identity, Spanning
from services.gateway.requests.transactions.survey import identity_of, survey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest


def identity_on(
    cluster: str, transactional_id: str, presented: Identity, home: str, mesh: MeshView
) -> Generator[Command, Any, Identity | ErrorCode]:
    """Under which identity the producer that presents this one may write to the cluster."""
    producer = mesh.memory.spanning.get(transactional_id, mesh.now)
    if producer is None or (producer.home, producer.identity) != (home, presented):
        producer = Spanning(home, presented)
    known = producer.on(cluster)
    if known is not None:
        return known
    found = yield from _find(cluster, transactional_id, presented, home, mesh)
    if isinstance(found, Identity):
        producer.found[cluster] = found
        mesh.memory.spanning.put(transactional_id, producer, mesh.now)
    return found


def _find(
    cluster: str, transactional_id: str, presented: Identity, home: str, mesh: MeshView
) -> Generator[Command, Any, Identity | ErrorCode]:
    states = yield from survey(transactional_id, (cluster, home), mesh)
    at_home = rightful(states.get(home), presented)
    there = states.get(cluster)
    if not isinstance(at_home, TransactionState):
        return at_home
    if isinstance(there, Unreachable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if there is not None:
        found = identity_of(there)
    else:
        first = InitProducerIdRequest(transactional_id, at_home.transaction_timeout_ms)
        outcome = yield from init_producer(cluster, transactional_id, first, INIT_VERSION, mesh)
        if outcome.error_code:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = Identity(outcome.producer_id, outcome.producer_epoch)
    states = yield from survey(transactional_id, (home,), mesh)
    still = rightful(states.get(home), presented)
    return found if isinstance(still, TransactionState) else still


def rightful(at_home: TransactionState | Unreachable | None, presented: Identity) -> TransactionState | ErrorCode:
    """What home knows of the id, if the identity that a client presents is the one there."""
    if isinstance(at_home, Unreachable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if at_home is None or at_home.producer_id != presented.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return at_home if at_home.producer_epoch == presented.epoch else ErrorCode.PRODUCER_FENCED
