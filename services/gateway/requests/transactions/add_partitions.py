"""AddPartitionsToTxn: a transaction is about to write to these partitions.

All or nothing, as on a broker: if one of them lives elsewhere, none is added, and the others say that they were not
tried. Brokers send versions 4 and 5 among themselves; clients stay below.
"""

from services.gateway.requests.plan import Forget, MeshView, Plan, Request
from services.gateway.requests.transactions.coordinator import COORDINATOR_MOVED, ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import FOREIGN_TOPIC, foreign_topics, tell_refused, transaction_home
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AddPartitionsToTxnRequest)
    transactional_id = message.v3_and_below_transactional_id
    home = transaction_home(transactional_id, mesh)
    foreign = foreign_topics((topic.name for topic in message.v3_and_below_topics), home, mesh)
    if foreign:
        tell_refused("AddPartitionsToTxn", transactional_id, home, foreign)
        return _answer(message, dict.fromkeys(foreign, FOREIGN_TOPIC), ErrorCode.OPERATION_NOT_ATTEMPTED)
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(home, coordinator, message, request.version, AddPartitionsToTxnResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return _answer(message, {}, outcome)
    results = outcome.results_by_topic_v3_and_below
    if home is not None and any(
        p.partition_error_code in COORDINATOR_MOVED for r in results for p in r.results_by_partition
    ):
        yield Forget(home, coordinator)
    return outcome


def _answer(
    message: AddPartitionsToTxnRequest, errors: dict[str, ErrorCode], others: ErrorCode
) -> AddPartitionsToTxnResponse:
    """These topics with their errors, all others with one."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(index, errors.get(topic.name, others))
                    for index in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
    )
