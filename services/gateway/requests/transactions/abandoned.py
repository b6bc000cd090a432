"""Aborts abandoned parts: home has ended their transaction by its time-out, and nobody has decided to commit it.

Theory of operation
1. A producer that comes back aborts its own parts (`begin`). The sweep aborts the parts of a producer that does not.
2. PART_TIMEOUT_MS marks a part. The sweep touches no other transaction: a client that goes around the mesh may use the
   same transactional id on two clusters. Home must know the id, too: two meshes may share a cluster.
3. A part is registered at home before its first record is written, and a decision is in the log before home commits.
   So the sweep asks the part's cluster first, then all others, and reads the logs last. A part is abandoned if it is
   open, no open transaction lists it, and no decision names it, not even a written one (`decisions.settle`).
4. While a cluster can't be asked, the sweep leaves all parts as they are. Their brokers abort them when PART_TIMEOUT_MS
   is over.
5. The abort names the identity of the part (KIP-360). A coordinator refuses it if the producer has begun anew.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

import structlog

from mesh.transactions import ONGOING, OPEN, PART_TIMEOUT_MS, Identity
from services.gateway.requests.plan import Broker, Call, Command, MeshView, Unreachable, ask_all
from services.gateway.requests.transactions.home import takes_part, transaction_home
from services.gateway.requests.transactions.log_reading import read_logs
from services.gateway.requests.transactions.parts import FENCED_SOON, INIT_VERSION, forget_part, init_producer
from services.gateway.requests.transactions.registry import registered_parts
from services.gateway.requests.transactions.survey import identity_of, survey
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest
from services.gateway.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

LIST_VERSION: Final = 1
OPEN_FOR_MS: Final = 10_000
"""Younger transactions are not listed. Brokers before Kafka 3.8 list them all the same."""
MOST_LOOKS: Final = 100
"""Parts that one sweep asks about; the next sweep begins with those that waited longest."""

log = structlog.get_logger(__name__)


class OpenPart(NamedTuple):
    """A transactional id that is open on another cluster than its home."""

    cluster: str
    transactional_id: str
    producer_id: int


Looked = Mapping[OpenPart, float]
"""The open parts, with the time at which the sweep asked about each last, in monotonic seconds."""


def abort_abandoned(before: Looked, mesh: MeshView) -> Generator[Command, Any, dict[OpenPart, float]]:
    """Asks about parts that the last sweep has seen as well. Returns the open parts, for the next call."""
    parts = yield from _open_parts(mesh)
    looked = {part: before.get(part, mesh.now) for part in parts}
    for part in sorted(parts & before.keys(), key=lambda part: looked[part])[:MOST_LOOKS]:
        looked[part] = mesh.now
        yield from _look(part.cluster, part.transactional_id, mesh)
    return looked


def _open_parts(mesh: MeshView) -> Generator[Command, Any, set[OpenPart]]:
    calls = []
    for cluster, knowledge in mesh.clusters.items():
        if not knowledge.available or not takes_part(cluster, mesh):
            continue
        version = highest_version(mesh, cluster, ApiKey.LIST_TRANSACTIONS, LIST_VERSION)
        question = ListTransactionsRequest([ONGOING], duration_filter=OPEN_FOR_MS if version >= LIST_VERSION else -1)
        calls += [Call(cluster, question, version, Broker(broker), by_mesh=True) for broker in knowledge.brokers]
    outcomes = yield from ask_all(calls, ListTransactionsResponse)
    return {
        OpenPart(call.cluster, state.transactional_id, state.producer_id)
        for call, outcome in zip(calls, outcomes, strict=True)
        if not isinstance(outcome, Unreachable)
        for state in outcome.transaction_states
        if transaction_home(state.transactional_id, mesh) != call.cluster
    }


def _look(cluster: str, transactional_id: str, mesh: MeshView) -> Generator[Command, Any, None]:
    there = yield from survey(transactional_id, (cluster,), mesh, own_names=True)
    part = there.get(cluster)
    if not isinstance(part, TransactionState) or part.transaction_state != ONGOING:
        return
    if part.transaction_timeout_ms != PART_TIMEOUT_MS:
        return
    others = (other for other in mesh.table.clusters if other != cluster)
    states = yield from survey(transactional_id, others, mesh, own_names=True)
    if transaction_home(transactional_id, mesh) not in states:
        return
    if any(isinstance(state, Unreachable) or _may_have(cluster, state, mesh) for state in states.values()):
        return
    logs = yield from read_logs([home for home in mesh.table.clusters if takes_part(home, mesh)], mesh)
    for found in logs.values():
        if found is None:
            return
        known = (*found.decisions_on(transactional_id), *found.written_about(transactional_id))
        if any(cluster in decision.parts for decision in known):
            return
    yield from _abort(cluster, transactional_id, identity_of(part), mesh)


def _may_have(cluster: str, elsewhere: TransactionState, mesh: MeshView) -> bool:
    """Whether a transaction that is open on another cluster may have the part on `cluster`."""
    if elsewhere.transaction_state == ONGOING:
        return cluster in registered_parts(elsewhere, mesh)
    return elsewhere.transaction_state in OPEN


def _abort(cluster: str, transactional_id: str, identity: Identity, mesh: MeshView) -> Generator[Command, Any, None]:
    message = InitProducerIdRequest(transactional_id, PART_TIMEOUT_MS, *identity)
    outcome = yield from init_producer(cluster, transactional_id, message, INIT_VERSION, mesh)
    forget_part(cluster, transactional_id, mesh)
    if outcome.error_code in (ErrorCode.NONE, FENCED_SOON):
        log.info(
            "aborted a part of a transaction that home has ended", transactional_id=transactional_id, cluster=cluster
        )
    else:
        log.warning(
            "a part of a transaction that home has ended could not be aborted; a later sweep tries again",
            transactional_id=transactional_id,
            cluster=cluster,
            error=error_name(outcome.error_code),
        )
