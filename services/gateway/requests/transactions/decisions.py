"""Writes the log of a transactional id's home, and carries its decisions out; see `mesh.transactions.log`."""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final

import structlog

from mesh.compression import Codec
from mesh.transactions import (
    LOG_PARTITION,
    NOTE_VALUE,
    ONGOING,
    OPEN,
    SECOND_PROTOCOL_SINCE,
    TRANSACTIONS_TOPIC,
    Decision,
    Identity,
    Part,
    TransactionLog,
    note_key,
)
from services.gateway.requests.placement import LEADER_ERRORS
from services.gateway.requests.plan import (
    Broker,
    Call,
    Command,
    Gather,
    Lane,
    MeshView,
    Stale,
    Unreachable,
    ask,
    refresh,
)
from services.gateway.requests.together import together
from services.gateway.requests.transactions.coordinator import ask_coordinators, coordinator_of
from services.gateway.requests.transactions.home import takes_part
from services.gateway.requests.transactions.log_reading import known_log, read_log
from services.gateway.requests.transactions.registry import register, see_to_topic
from services.gateway.requests.transactions.survey import identity_of, survey
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import SEQUENCES
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.legacy.record import Group, Record
from services.gateway.wire.legacy.record_batches import Transactional, write_batch
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_VERSION: Final = {False: 11, True: 12}
"""The version of Produce, by whether the second protocol is spoken: version 12 adds the partition to the transaction by
itself."""
PRODUCERS_VERSION: Final = 0
WRITE_MS: Final = 5_000

log = structlog.get_logger(__name__)


# --- writing -----------------------------------------------------------------------------------------------------


def prepare_decision(
    home: str, transactional_id: str, at_home: Identity, version: int, mesh: MeshView
) -> Generator[Command, Any, int | ErrorCode]:
    """The sequence number of the decision's record; an error if the record can't be written now.

    By the second protocol each transaction has an epoch of its own, so there is nothing to prepare.
    """
    if version >= SECOND_PROTOCOL_SINCE:
        return 0
    error, sequence = yield from together(
        register(home, transactional_id, at_home, LOG_PARTITION, mesh), _next_sequence(home, at_home, mesh)
    )
    if error:
        return error
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if sequence is None else sequence


def write_decision(home: str, decision: Decision, sequence: int, mesh: MeshView) -> Generator[Command, Any, ErrorCode]:
    """Writes the decision into the open transaction at home; the commit of that transaction makes it valid.

    A repetition is the same record, and dropped.
    """
    producer = Transactional(*decision.at_home, sequence)
    version = PRODUCE_VERSION[decision.version >= SECOND_PROTOCOL_SINCE]
    return (
        yield from _write(
            home, decision.key, decision.value, mesh, decision.transactional_id, producer, version=version
        )
    )


def write_note(home: str, transactional_id: str, cluster: str, mesh: MeshView) -> Generator[Command, Any, ErrorCode]:
    fault = yield from see_to_topic(home, LOG_PARTITION, mesh)
    return fault or (yield from _write(home, note_key(transactional_id, cluster), NOTE_VALUE, mesh))


def settle(
    home: str, found: TransactionLog, transactional_id: str, mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Asks home's coordinator about written decisions on the id whose marker is missing (`mesh.transactions.log`, 1).

    Returns an error if home can't tell now. Home can tell until it gives the producer its next identity.
    """
    written = found.written_about(transactional_id)
    if not written:
        return ErrorCode.NONE
    states = yield from survey(transactional_id, (home,), mesh, own_names=True)
    at_home = states.get(home)
    if isinstance(at_home, Unreachable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if at_home is not None and at_home.transaction_state in OPEN:
        return ErrorCode.NONE if at_home.transaction_state == ONGOING else ErrorCode.CONCURRENT_TRANSACTIONS
    for decision in written:
        if at_home is None or not decision.is_committed(at_home.transaction_state, identity_of(at_home)):
            found.void(decision)
            continue
        error = yield from _write(home, decision.key, decision.value, mesh)
        if error:
            return error
        found.enter(decision.key, decision.value, None)
        log.warning(
            "home has committed a transaction and skipped the marker of its decision; the gateway repeats the decision",
            transactional_id=transactional_id,
            cluster=home,
        )
    return ErrorCode.NONE


def end_note(home: str, transactional_id: str, cluster: str, mesh: MeshView) -> Generator[Command, Any, ErrorCode]:
    return (yield from _write(home, note_key(transactional_id, cluster), None, mesh))


def end_decision(home: str, decision: Decision, mesh: MeshView) -> Generator[Command, Any, None]:
    """Writes that the decision is carried out; nobody waits for the answer.

    If this record is lost, a later sweep reads the decision again, and finds it carried out. While home is away,
    this gateway alone knows: its readers wait no longer.
    """
    if not mesh.clusters[home].available:
        known_log(home, mesh).carried_out(decision)
        return
    call = _writing(home, decision.key, None, mesh)
    if call is not None:
        yield Gather((call,), lambda _: True, 0.0)


def _next_sequence(home: str, at_home: Identity, mesh: MeshView) -> Generator[Command, Any, int | None]:
    leader = mesh.clusters[home].leader(TRANSACTIONS_TOPIC, LOG_PARTITION)
    if leader is None:
        yield from refresh(home, (TRANSACTIONS_TOPIC,))
        leader = mesh.clusters[home].leader(TRANSACTIONS_TOPIC, LOG_PARTITION)
    if leader is None:
        return None
    question = DescribeProducersRequest([TopicRequest(TRANSACTIONS_TOPIC, [LOG_PARTITION])])
    call = Call(home, question, PRODUCERS_VERSION, Broker(leader), by_mesh=True)
    outcome = yield from ask(call, DescribeProducersResponse, preliminary=True)
    if isinstance(outcome, Unreachable) or outcome.topics[0].partitions[0].error_code:
        yield Stale(home, (TRANSACTIONS_TOPIC,))
        return None
    for producer in outcome.topics[0].partitions[0].active_producers:
        if (producer.producer_id, producer.producer_epoch) == at_home:
            return (producer.last_sequence + 1) % SEQUENCES
    return 0


def _write(
    home: str,
    key: bytes,
    value: bytes | None,
    mesh: MeshView,
    transactional_id: str | None = None,
    producer: Transactional | None = None,
    *,
    version: int = PRODUCE_VERSION[False],
) -> Generator[Command, Any, ErrorCode]:
    if mesh.clusters[home].leader(TRANSACTIONS_TOPIC, LOG_PARTITION) is None:
        yield from refresh(home, (TRANSACTIONS_TOPIC,))
    call = _writing(home, key, value, mesh, transactional_id, producer, version=version)
    if call is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    outcome = yield from ask(call, ProduceResponse, preliminary=True)
    if isinstance(outcome, Unreachable):
        yield Stale(home, (TRANSACTIONS_TOPIC,))
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = outcome.responses[0].partition_responses[0].error_code
    if error in LEADER_ERRORS:
        yield Stale(home, (TRANSACTIONS_TOPIC,))
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode(error)


def _writing(
    home: str,
    key: bytes,
    value: bytes | None,
    mesh: MeshView,
    transactional_id: str | None = None,
    producer: Transactional | None = None,
    *,
    version: int = PRODUCE_VERSION[False],
) -> Call | None:
    leader = mesh.clusters[home].leader(TRANSACTIONS_TOPIC, LOG_PARTITION)
    if leader is None:
        return None
    record = Record(0, mesh.time_ms, key, value)
    batch = write_batch([Group(Codec.NONE, False, iter([record]), 1)], 1, producer)
    topic = TopicProduceData(TRANSACTIONS_TOPIC, partition_data=[PartitionProduceData(LOG_PARTITION, batch)])
    message = ProduceRequest(transactional_id, -1, WRITE_MS, [topic])
    version = highest_version(mesh, home, ApiKey.PRODUCE, version)
    return Call(home, message, version, Broker(leader), Lane.CLIENT, by_mesh=True)


# --- carrying out ------------------------------------------------------------------------------------------------


def finish_all(transactional_id: str, homes: Iterable[str], mesh: MeshView) -> Generator[Command, Any, ErrorCode]:
    """Carries out the decisions about the id that are not done. Returns an error if a cluster can't be asked now."""
    for home in homes:
        if not takes_part(home, mesh):
            continue
        found = yield from read_log(home, mesh)
        if found is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = yield from settle(home, found, transactional_id, mesh)
        if error:
            return error
        for decision in found.decisions_on(transactional_id):
            error = yield from finish(home, decision, mesh)
            if error:
                return error
    return ErrorCode.NONE


def finish(home: str, decision: Decision, mesh: MeshView) -> Generator[Command, Any, ErrorCode]:
    """Commits the parts that are still open."""
    left = yield from open_parts(decision, mesh)
    if left is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    ended = yield from commit_parts(decision, left, mesh)
    if isinstance(ended, ErrorCode):
        return ended
    if left:
        log.info(
            "a transaction that another gateway had decided is finished",
            transactional_id=decision.transactional_id,
            decided_on=home,
            committed_on=sorted(left),
        )
    yield from end_decision(home, decision, mesh)
    return ErrorCode.NONE


def open_parts(decision: Decision, mesh: MeshView) -> Generator[Command, Any, dict[str, Identity] | None]:
    """The parts that wait for their commit; None while a cluster can't be asked."""
    here = [cluster for cluster in decision.parts if cluster in mesh.clusters]
    states = yield from survey(decision.transactional_id, here, mesh)
    if any(isinstance(state, Unreachable) for state in states.values()):
        return None
    return {
        cluster: part.identity
        for cluster, part in decision.parts.items()
        if isinstance(state := states.get(cluster), TransactionState) and _is_open(state, part)
    }


def _is_open(state: TransactionState, part: Part) -> bool:
    return part.is_open(state.transaction_state, identity_of(state), state.transaction_start_time_ms)


def commit_parts(
    decision: Decision, parts: Mapping[str, Identity], mesh: MeshView
) -> Generator[Command, Any, dict[str, Identity] | ErrorCode]:
    """Commits the decided parts on these clusters at once. Returns their next identities; after an error, retry."""
    transactional_id = decision.transactional_id
    messages = {cluster: EndTxnRequest(transactional_id, *identity, True) for cluster, identity in parts.items()}
    coordinator = coordinator_of(transactional_id)
    outcomes = yield from ask_coordinators(messages, coordinator, decision.version, EndTxnResponse, mesh)
    ended: dict[str, Identity] = {}
    waits: ErrorCode | None = None
    for cluster, outcome in outcomes.items():
        error = outcome if isinstance(outcome, ErrorCode) else ErrorCode(outcome.error_code)
        if error.retriable:
            waits = error
        elif error:
            log.error(
                "a part of a committed transaction is lost: its cluster had aborted it by its time-out",
                transactional_id=transactional_id,
                cluster=cluster,
                error=error_name(error),
                committed_on=sorted(set(decision.parts) - {cluster}),
            )
        elif not isinstance(outcome, ErrorCode):
            following = Identity(outcome.producer_id, outcome.producer_epoch)
            ended[cluster] = following if following.producer_id >= 0 else parts[cluster]
    return ended if waits is None else waits
