"""AddPartitionsToTxn: a transaction is about to write to these partitions; each cluster gets its own partitions.

If one partition is on a cluster that takes no part in transactions of other clusters, no partition is added, as on a
broker. The other partitions answer OPERATION_NOT_ATTEMPTED. The same holds for the mesh's own topics, which clients do
not see. Brokers send versions 4 and 5 among themselves; clients send lower versions.
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any

from mesh.topics import is_own_topic
from mesh.transactions import Identity
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import Command, Forget, MeshView, Plan, Request
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import (
    FOREIGN_TOPIC,
    closed_topics,
    foreign_topics,
    tell_refused,
    transaction_home,
)
from services.gateway.requests.transactions.parts import FENCED, FENCED_SOON, forget_part, part_on
from services.gateway.requests.transactions.registry import open_at_home, open_where_known
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

FENCED_SINCE = 2
"""The first version in which PRODUCER_FENCED is an error of this API."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AddPartitionsToTxnRequest)
    transactional_id = message.v3_and_below_transactional_id
    topics = message.v3_and_below_topics
    home = transaction_home(transactional_id, mesh)
    if home is None:
        return _answer(message, _failed(topics, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    if any(is_own_topic(topic.name) for topic in topics):
        return _none_added(message, is_own_topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    foreign = foreign_topics((topic.name for topic in topics), home, mesh)
    closed = closed_topics(foreign, home, mesh)
    if closed:
        opened = yield from open_at_home(home, transactional_id, _presented(message), mesh)
        if opened is ErrorCode.CONCURRENT_TRANSACTIONS:  # home still ends the transaction before: clients ask again
            return _answer(message, _failed(topics, opened))
        tell_refused("AddPartitionsToTxn", transactional_id, home, closed)
        return _none_added(message, closed.__contains__, FOREIGN_TOPIC)
    parts: dict[str, list[AddPartitionsToTxnTopic]] = {}
    for topic in topics:
        parts.setdefault(foreign.get(topic.name, home), []).append(topic)
    results: list[AddPartitionsToTxnTopicResult] = []
    for cluster, part in parts.items():
        results += yield from _add(message, request.version, cluster, part, home, mesh)
    errors = {partition.partition_error_code for result in results for partition in result.results_by_partition}
    if ErrorCode.INVALID_PRODUCER_ID_MAPPING in errors:
        error = yield from open_where_known(home, transactional_id, _presented(message), mesh)
        results = _failed(topics, error)
    return _answer(message, results)


def _add(
    message: AddPartitionsToTxnRequest,
    version: int,
    cluster: str,
    topics: list[AddPartitionsToTxnTopic],
    home: str,
    mesh: MeshView,
) -> Generator[Command, Any, list[AddPartitionsToTxnTopicResult]]:
    """Adds these topics to the transaction on their cluster, under the producer's identity there."""
    transactional_id = message.v3_and_below_transactional_id
    presented = _presented(message)
    identity = yield from part_on(cluster, transactional_id, presented, home, mesh, registers=True)
    if isinstance(identity, ErrorCode):
        if identity.retriable:
            yield from open_at_home(home, transactional_id, presented, mesh)
        old = version < FENCED_SINCE and identity is ErrorCode.PRODUCER_FENCED
        return _failed(topics, ErrorCode.INVALID_PRODUCER_EPOCH if old else identity)
    part = replace(
        message,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=topics,
    )
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(cluster, coordinator, part, version, AddPartitionsToTxnResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return _failed(topics, outcome)
    results = outcome.results_by_topic_v3_and_below
    if any(p.partition_error_code in COORDINATOR_MOVED for topic in results for p in topic.results_by_partition):
        yield Forget(cluster, coordinator)
    if cluster != home and any(p.partition_error_code in FENCED for t in results for p in t.results_by_partition):
        forget_part(cluster, transactional_id, mesh)  # home has just confirmed that this producer is current
        return _failed(topics, FENCED_SOON)
    return results


def _presented(message: AddPartitionsToTxnRequest) -> Identity:
    return Identity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)


def _none_added(
    message: AddPartitionsToTxnRequest, is_faulty: Callable[[str], bool], error: ErrorCode
) -> AddPartitionsToTxnResponse:
    topics = message.v3_and_below_topics
    return _answer(
        message,
        _failed((topic for topic in topics if is_faulty(topic.name)), error)
        + _failed((topic for topic in topics if not is_faulty(topic.name)), ErrorCode.OPERATION_NOT_ATTEMPTED),
    )


def _failed(topics: Iterable[AddPartitionsToTxnTopic], error: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name, [AddPartitionsToTxnPartitionResult(index, error) for index in topic.partitions]
        )
        for topic in topics
    ]


def _answer(
    message: AddPartitionsToTxnRequest, results: list[AddPartitionsToTxnTopicResult]
) -> AddPartitionsToTxnResponse:
    """The answer, with topics in the client's order."""
    by_name = {result.name: result for result in results}
    found = [by_name[topic.name] for topic in message.v3_and_below_topics if topic.name in by_name]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=found)
