"""A transaction's part on a cluster other than its home: under which identity its producer writes there.

Theory of operation
1. The client uses its identity at home. On any other cluster its records and offsets carry the identity that this
   cluster's coordinator gave; the gateway initialises an id there at its first use.
2. The gateway registers the part at home before it sends anything to the other cluster (`registry`), and home refuses a
   producer that was replaced. With the second protocol the gateway registers once for each transaction; with the first
   whenever the client adds partitions or offsets.
3. A transaction that is open on the other cluster, but not registered at home, was left by a previous producer. The
   gateway commits this transaction if a decision says so, and else aborts it, before anything new is written there.
4. The gateway does the same on a cluster that was unreachable when the producer began (`mesh.transactions.log`, notes).
5. Requests may come to any gateway, in any order: each gateway finds the identities on the clusters. Two gateways that
   do so at once, for an id that a cluster has never seen, may get two identities. The commit detects this (`registry`,
   2).
6. A part has PART_TIMEOUT_MS, so its cluster may be away between the decision and the part's commit. Home has the
   client's `transaction.timeout.ms`, and ends the whole: a part without a transaction at home is aborted (`abandoned`).
   A cluster that allows less gives its parts the client's time-out.
"""

from collections.abc import Generator, Iterable
from typing import Any

from mesh.transactions import EPOCHS, ONGOING, OPEN, PART_TIMEOUT_MS, Identity
from services.gateway.requests.plan import Command, MeshView, Unreachable
from services.gateway.requests.together import together
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.decisions import end_note, finish_all
from services.gateway.requests.transactions.log_reading import read_log
from services.gateway.requests.transactions.registry import partition_of, register, registered_parts
from services.gateway.requests.transactions.state import Producer
from services.gateway.requests.transactions.survey import identity_of, survey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

INIT_VERSION = 4
"""The version of the gateway's own InitProducerId: the last version with the errors of the first protocol."""
FENCED_SOON = ErrorCode.CONCURRENT_TRANSACTIONS
"""The answer while a coordinator still ends the open transaction: clients retry."""
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


def part_on(
    cluster: str, transactional_id: str, presented: Identity, home: str, mesh: MeshView, *, registers: bool = False
) -> Generator[Command, Any, Identity | ErrorCode]:
    """Under which identity the producer that presents this one may write to the cluster, as part of its transaction.

    `registers`: the gateway registers the part at home again, even if it remembers to have done so.
    """
    if cluster == home:
        return presented
    producer = remembered(transactional_id, presented, home, mesh)
    known = producer.elsewhere.get(cluster)
    if known is not None and cluster in producer.parts and not registers:
        return known
    if known is None:
        found = yield from _find(cluster, transactional_id, presented, home, mesh)
        if isinstance(found, ErrorCode):
            return found
        producer = remembered(transactional_id, presented, home, mesh)
        known = producer.elsewhere.setdefault(cluster, found)
    error = yield from register(home, transactional_id, presented, partition_of(cluster, known.epoch, mesh), mesh)
    if error:
        return error
    producer.parts.add(cluster)
    mesh.memory.producers.put(transactional_id, producer, mesh.now)
    return known


def remembered(transactional_id: str, presented: Identity, home: str, mesh: MeshView) -> Producer:
    """The known state of the producer that presents this identity; the state of any other producer is dropped."""
    producer = mesh.memory.producers.get(transactional_id, mesh.now)
    if producer is None or (producer.home, producer.identity) != (home, presented):
        producer = Producer(home, presented)
        mesh.memory.producers.put(transactional_id, producer, mesh.now)
    return producer


def forget_part(cluster: str, transactional_id: str, mesh: MeshView) -> None:
    """The cluster does not take the identity that was remembered: it has ended what was open, by its time-out."""
    producer = mesh.memory.producers.get(transactional_id, mesh.now)
    if producer is not None:
        producer.elsewhere.pop(cluster, None)
        producer.parts.discard(cluster)


def _find(
    cluster: str, transactional_id: str, presented: Identity, home: str, mesh: MeshView
) -> Generator[Command, Any, Identity | ErrorCode]:
    notes, states = yield from together(read_log(home, mesh), survey(transactional_id, (cluster,), mesh))
    there = states.get(cluster)
    if notes is None or isinstance(there, Unreachable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    noted = notes.is_unfenced(transactional_id, cluster)
    if there is not None and not noted and there.transaction_state not in OPEN:
        return identity_of(there)
    # home is asked after the other cluster: what is open there by now is registered by now
    at_home = yield from _rightful(transactional_id, presented, home, mesh)
    if isinstance(at_home, ErrorCode):
        return at_home
    if there is None:
        return (yield from take_over(cluster, transactional_id, at_home.transaction_timeout_ms, (), mesh))
    registered = registered_parts(at_home, mesh).get(cluster) if at_home.transaction_state == ONGOING else None
    if not noted and registered == {there.producer_epoch % EPOCHS}:
        return identity_of(there)
    fenced = yield from take_over(cluster, transactional_id, at_home.transaction_timeout_ms, mesh.table.clusters, mesh)
    if noted and isinstance(fenced, Identity):
        error = yield from end_note(home, transactional_id, cluster, mesh)
        if error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return fenced


def _rightful(
    transactional_id: str, presented: Identity, home: str, mesh: MeshView
) -> Generator[Command, Any, TransactionState | ErrorCode]:
    """Home's state of the id, if the client presents the identity that is current at home; else an error."""
    states = yield from survey(transactional_id, (home,), mesh)
    at_home = states.get(home)
    if isinstance(at_home, Unreachable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if at_home is None or at_home.producer_id != presented.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return at_home if at_home.producer_epoch == presented.epoch else ErrorCode.PRODUCER_FENCED


def take_over(
    cluster: str, transactional_id: str, timeout_ms: int, decided_on: Iterable[str], mesh: MeshView
) -> Generator[Command, Any, Identity | ErrorCode]:
    """Gets a new identity on the cluster, which fences the previous producer there. The open transaction of that
    producer is ended as one of the homes `decided_on` has decided. `timeout_ms`: the client's own."""
    error = yield from finish_all(transactional_id, decided_on, mesh)
    if error:
        return error
    for allowed_ms in (max(PART_TIMEOUT_MS, timeout_ms), timeout_ms):
        first = InitProducerIdRequest(transactional_id, allowed_ms)
        outcome = yield from init_producer(cluster, transactional_id, first, INIT_VERSION, mesh)
        if outcome.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            break
    if outcome.error_code == FENCED_SOON:
        return FENCED_SOON
    if outcome.error_code:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return Identity(outcome.producer_id, outcome.producer_epoch)


def init_producer(
    cluster: str, transactional_id: str, message: InitProducerIdRequest, version: int, mesh: MeshView
) -> Generator[Command, Any, InitProducerIdResponse]:
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(cluster, coordinator, message, version, InitProducerIdResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return InitProducerIdResponse(error_code=outcome, producer_id=-1, producer_epoch=-1)
    return outcome
