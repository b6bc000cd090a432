"""The list of clusters with a part in an open transaction, which the coordinator at home keeps.

Theory of operation
1. The topic `mesh.transactions` on the id's home has four partitions for each cluster of the mesh. Before a cluster's
   first record of a transaction is acknowledged, the gateway adds one of the four to the transaction at home. Nothing
   is written there: the coordinator's list of partitions is the registry. The coordinator checks the producer that adds
   a partition, and any gateway reads the list with one DescribeTransactions.
2. The index of the partition among the four is the remainder of the epoch under which the producer writes on that
   cluster. A part that a broker has aborted by its time-out goes on under another epoch, so the commit detects the
   abort. The commit also detects a part to which two gateways have written under different epochs.
3. Partition 0 belongs to no cluster: it holds the records of `decisions`. A transaction with partition 0 alone was
   opened for a producer that the gateway refused (`open_at_home`).
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

import structlog

from mesh.transactions import EPOCHS, LOG_PARTITION, TRANSACTIONS_TOPIC, Identity, parts_of, registry_partition
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import Call, Command, Controller, Forget, Lane, MeshView, Unreachable, ask, refresh
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.survey import identity_of, survey
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from services.gateway.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from services.gateway.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from services.gateway.wire.messages.describe_transactions import TransactionState

ADD_VERSION: Final = 3
"""The last version of AddPartitionsToTxn for clients."""
CREATE_VERSION, GROW_VERSION = 5, 2
TIMEOUT_MS: Final = 5_000
REPLICAS: Final = 3
MADE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
"""Another gateway may be faster."""
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}
"""Few records stay for long: the topic is compacted often, so that a gateway that starts reads little."""

log = structlog.get_logger(__name__)


def partition_of(cluster: str, epoch: int, mesh: MeshView) -> int:
    return registry_partition(mesh.table.clusters[cluster].ordinal, epoch)


def registered_parts(at_home: TransactionState, mesh: MeshView) -> Mapping[str, set[int]]:
    """By cluster, the remainders of the epochs under which a transaction has a part there; "" stands for clusters that
    have left the mesh."""
    by_ordinal = {cluster.ordinal: name for name, cluster in mesh.table.clusters.items()}
    own = [partition for topic in at_home.topics if topic.topic == TRANSACTIONS_TOPIC for partition in topic.partitions]
    parts: dict[str, set[int]] = {}
    for ordinal, remainders in parts_of(own).items():
        parts.setdefault(by_ordinal.get(ordinal, ""), set()).update(remainders)
    return parts


def writes_at_home(at_home: TransactionState) -> bool:
    """Whether home has a part with records or offsets of the client's own."""
    return any(topic.topic != TRANSACTIONS_TOPIC for topic in at_home.topics)


def register(
    home: str, transactional_id: str, presented: Identity, partition: int, mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Adds a partition of the registry to the transaction at home; the coordinator there checks the identity."""
    fault = yield from see_to_topic(home, partition, mesh)
    if fault is not None:
        return fault
    topic = AddPartitionsToTxnTopic(TRANSACTIONS_TOPIC, [partition])
    message = AddPartitionsToTxnRequest([], transactional_id, *presented, [topic])
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(home, coordinator, message, ADD_VERSION, AddPartitionsToTxnResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return outcome
    errors = [p.partition_error_code for t in outcome.results_by_topic_v3_and_below for p in t.results_by_partition]
    error = ErrorCode(next(iter(errors), ErrorCode.UNKNOWN_SERVER_ERROR))
    if error in COORDINATOR_MOVED:
        yield Forget(home, coordinator)
    elif error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        log.error("the gateway may not write to the topic for transactions", cluster=home, topic=TRANSACTIONS_TOPIC)
    return error


def open_at_home(
    home: str, transactional_id: str, presented: Identity, mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Gives home something to abort, if the gateway itself keeps a client's first partition from its cluster.

    Else the coordinator answers an abort by the first protocol with INVALID_TXN_STATE, of which librdkafka dies. If
    home can't be asked now, a client hears that error. By the second protocol coordinators take an abort of nothing.
    """
    return (yield from register(home, transactional_id, presented, LOG_PARTITION, mesh))


def open_where_known(
    home: str, transactional_id: str, presented: Identity, mesh: MeshView
) -> Generator[Command, Any, ErrorCode]:
    """Does the same on the previous home, for a producer that home does not know because a rule has moved its id.

    Returns what its client hears: INVALID_PRODUCER_ID_MAPPING, or CONCURRENT_TRANSACTIONS while the previous home still
    ends the transaction before. Then the client asks again.
    """
    known = yield from survey(transactional_id, (cluster for cluster in mesh.table.clusters if cluster != home), mesh)
    for cluster, state in known.items():
        if isinstance(state, TransactionState) and identity_of(state) == presented:
            opened = yield from open_at_home(cluster, transactional_id, presented, mesh)
            if opened is ErrorCode.CONCURRENT_TRANSACTIONS:
                return opened
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING


def see_to_topic(home: str, partition: int, mesh: MeshView) -> Generator[Command, Any, ErrorCode | None]:
    """Sees to it that the home has the topic, with a partition of this number; the error for now if it has not."""
    knowledge = mesh.clusters[home]
    if partition < (knowledge.partition_count(TRANSACTIONS_TOPIC) or 0):
        return None
    failed = yield from refresh(home, (TRANSACTIONS_TOPIC,))
    if failed is not None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    count = knowledge.partition_count(TRANSACTIONS_TOPIC) or 0
    if partition < count:
        return None
    wanted = LOG_PARTITION + 1 + EPOCHS * (1 + max(cluster.ordinal for cluster in mesh.table.clusters.values()))
    outcome: CreateTopicsResponse | CreatePartitionsResponse | Unreachable
    if count == 0:
        outcome = yield from _create(home, wanted, mesh)
    else:
        grown = CreatePartitionsRequest([CreatePartitionsTopic(TRANSACTIONS_TOPIC, wanted, None)], TIMEOUT_MS)
        version = highest_version(mesh, home, ApiKey.CREATE_PARTITIONS, GROW_VERSION)
        call = Call(home, grown, version, Controller(), Lane.CLIENT, by_mesh=True)  # others must not wait behind it
        outcome = yield from ask(call, CreatePartitionsResponse, preliminary=True)
    _tell_made(home, wanted, outcome)
    yield from refresh(home, (TRANSACTIONS_TOPIC,))
    made = partition < (knowledge.partition_count(TRANSACTIONS_TOPIC) or 0)
    return None if made else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _create(home: str, partitions: int, mesh: MeshView) -> Generator[Command, Any, CreateTopicsResponse | Unreachable]:
    replicas = min(REPLICAS, max(1, len(mesh.clusters[home].brokers)))
    settings = CONFIGS | ({"min.insync.replicas": "2"} if replicas == REPLICAS else {})
    configs = [CreatableTopicConfig(name, value) for name, value in settings.items()]
    topic = CreatableTopic(TRANSACTIONS_TOPIC, partitions, replicas, configs=configs)
    version = highest_version(mesh, home, ApiKey.CREATE_TOPICS, CREATE_VERSION)
    call = Call(home, CreateTopicsRequest([topic], TIMEOUT_MS), version, Controller(), Lane.CLIENT, by_mesh=True)
    return (yield from ask(call, CreateTopicsResponse, preliminary=True))


def _tell_made(
    home: str, partitions: int, outcome: CreateTopicsResponse | CreatePartitionsResponse | Unreachable
) -> None:
    if isinstance(outcome, Unreachable):
        reason: str | None = outcome.reason
    else:
        results = outcome.topics if isinstance(outcome, CreateTopicsResponse) else outcome.results
        failed = [r for r in results if r.error_code not in MADE]
        reason = "; ".join(f"{error_name(r.error_code)} {r.error_message or ''}" for r in failed)
    if reason:
        log.warning(
            "the topic for transactions could not be made", cluster=home, topic=TRANSACTIONS_TOPIC, reason=reason
        )
    else:
        log.info("the topic for transactions was made", cluster=home, partitions=partitions)
