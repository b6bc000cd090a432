"""Asks the coordinators of one cluster about transactions, reads its log of decisions, and ends transactions there."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterable
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords

from mesh.exact_requests import Exactly
from mesh.routing import UpstreamCluster
from mesh.transactions import LOG_PARTITION, STATE_TOPIC, TRANSACTIONS_TOPIC, Identity, TransactionLog
from services.control.domain.transactions.transactions import CoordinatorState
from services.control.upstream.broker_connections import (
    ON_THE_WAY,
    PAUSE_S,
    BrokerConnections,
    CoordinatorRefusedError,
)
from services.control.upstream.connections import UnreachableError
from services.control.upstream.transaction_messages import (
    DescribeTransactionsRequest_v0,
    EndTxnRequest_v3,
    EndTxnRequest_v5,
    InitProducerIdRequest_v4,
    ListTransactionsRequest_v0,
)

ASK_S: Final = 8.0
READ_S: Final = 30.0
"""Seconds for reading a log of decisions: the first reading reads all of it."""
END_S: Final = 20.0
"""Seconds for an end. The coordinator writes a marker to each partition."""
TRANSACTIONAL_ID_NOT_FOUND: Final = 105
OFFSET_OUT_OF_RANGE: Final = 1
FENCED: Final = frozenset({47, 49, 90})
"""INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED: the identity is no longer the producer's."""
NOT_OPEN: Final = 48
"""INVALID_TXN_STATE: the transaction has ended otherwise meanwhile."""
PIECE_BYTES: Final = 1 << 20
AT_ONCE: Final = 50
"""Transactional ids that are asked about at the same time."""
READ_UNCOMMITTED: Final = 0
LATEST: Final = -1
MARKER_COMMIT: Final = 1
_MARKER: Final = struct.Struct(">hh")


class TransactionCoordinators:
    """The coordinators of all clusters. Remembers how far each log of decisions was read, and what it said."""

    def __init__(self) -> None:
        self._logs: dict[str, TransactionLog] = {}
        self._reading = asyncio.Lock()

    async def listed(self, cluster: UpstreamCluster, states: Iterable[str] = ()) -> set[str]:
        """The transactional ids that the cluster knows in these states; in any state without `states`."""
        found: set[str] = set()
        request = Exactly(ListTransactionsRequest_v0(list(states), [], {}))
        async with BrokerConnections(cluster, ASK_S) as brokers:
            for broker in brokers.brokers:
                while True:
                    told = await _told(brokers.ask(broker, request), cluster)
                    if told.error_code not in ON_THE_WAY:
                        break
                    await asyncio.sleep(PAUSE_S)
                if told.error_code:
                    raise UnreachableError(f"broker {broker} of {cluster.name!r} lists none: error {told.error_code}")
                found |= {each[0] for each in told.transaction_states}
        return found

    async def states(self, cluster: UpstreamCluster, transactional_ids: Collection[str]) -> dict[str, CoordinatorState]:
        """The state of each of these ids that the cluster knows."""
        found: dict[str, CoordinatorState] = {}
        async with BrokerConnections(cluster, ASK_S) as brokers:
            if STATE_TOPIC not in await brokers.partitions(STATE_TOPIC):
                return {}  # the look-up of a coordinator would create the topic
            wanted = sorted(transactional_ids)
            for start in range(0, len(wanted), AT_ONCE):
                some = wanted[start : start + AT_ONCE]
                states = await asyncio.gather(*(_state(brokers, cluster, each) for each in some))
                found |= {each: state for each, state in zip(some, states, strict=True) if state is not None}
        return found

    async def log(self, cluster: UpstreamCluster) -> TransactionLog:
        """The cluster's log of decisions as it is now."""
        async with self._reading:
            log = self._logs.pop(cluster.name, None) or TransactionLog()
            async with BrokerConnections(cluster, READ_S) as brokers:
                log = await _read(brokers, log)
            self._logs[cluster.name] = log
            return log

    async def end(
        self, cluster: UpstreamCluster, transactional_id: str, identity: Identity, *, commit: bool, second: bool
    ) -> bool:
        """Ends the transaction of exactly this identity. False: it has ended otherwise, or the identity is fenced."""
        kind = EndTxnRequest_v5 if second else EndTxnRequest_v3
        request = Exactly(kind(transactional_id, *identity, commit, {}))
        async with BrokerConnections(cluster, END_S) as brokers:
            told = await _told(brokers.ask_coordinator(transactional_id, request), cluster)
        if told.error_code in FENCED or told.error_code == NOT_OPEN:
            return False
        if told.error_code:
            raise CoordinatorRefusedError(cluster.name, told.error_code)
        return True

    async def fence(
        self, cluster: UpstreamCluster, transactional_id: str, identity: Identity, timeout_ms: int
    ) -> Identity | None:
        """Takes the identity's place (KIP-360). Returns the next identity; None: the identity was fenced already."""
        request = Exactly(InitProducerIdRequest_v4(transactional_id, timeout_ms, *identity, {}))
        async with BrokerConnections(cluster, END_S) as brokers:
            told = await _told(brokers.ask_coordinator(transactional_id, request), cluster)
        if told.error_code in FENCED:
            return None
        if told.error_code:
            raise CoordinatorRefusedError(cluster.name, told.error_code)
        return Identity(told.producer_id, told.producer_epoch)


async def _told(answer: Any, cluster: UpstreamCluster) -> Any:
    try:
        return await answer
    except IncompatibleBrokerVersion:
        raise UnreachableError(
            f"cluster {cluster.name!r} can't be asked about transactions: Kafka can since version 3.0"
        ) from None


async def _state(
    brokers: BrokerConnections, cluster: UpstreamCluster, transactional_id: str
) -> CoordinatorState | None:
    request = Exactly(DescribeTransactionsRequest_v0([transactional_id], {}))
    while True:
        coordinator = await brokers.coordinator(transactional_id)
        told = await _told(brokers.ask(coordinator, request), cluster)
        (error, _, state, timeout_ms, started_ms, producer_id, epoch, topics, _) = told.transaction_states[0]
        if error == TRANSACTIONAL_ID_NOT_FOUND:
            return None
        if not error:
            partitions = {topic: tuple(sorted(numbers)) for topic, numbers, _ in topics}
            return CoordinatorState(Identity(producer_id, epoch), state, timeout_ms, started_ms, partitions)
        if error not in ON_THE_WAY:
            raise UnreachableError(f"the coordinator on {cluster.name!r} answers with error {error}")
        await asyncio.sleep(PAUSE_S)


async def _read(brokers: BrokerConnections, log: TransactionLog) -> TransactionLog:
    """Reads up to the end that the leader tells first, as gateways do: after an election, a Fetch alone may miss
    acknowledged records for a while (KIP-207).
    """
    found = await brokers.partitions(TRANSACTIONS_TOPIC)
    if TRANSACTIONS_TOPIC not in found:
        return TransactionLog()  # nobody has written any
    leader = found[TRANSACTIONS_TOPIC].get(LOG_PARTITION, -1)
    asked = [(TRANSACTIONS_TOPIC, [(LOG_PARTITION, LATEST)])]
    ends = await brokers.ask(leader, OffsetRequest(-1, READ_UNCOMMITTED, asked))
    (_, error, _, end, *_) = ends.topics[0][1][0]
    if error:
        raise KafkaError(f"the end of {TRANSACTIONS_TOPIC} is unknown: error {error}")
    while True:
        wanted = [(TRANSACTIONS_TOPIC, [(LOG_PARTITION, log.next_offset, PIECE_BYTES)])]
        request = FetchRequest(0, 0, PIECE_BYTES, READ_UNCOMMITTED, wanted)
        told = await brokers.ask(leader, request)
        if not told.topics:
            raise KafkaError(f"{TRANSACTIONS_TOPIC} can't be read: the broker throttles control")
        (_, error, _, *_, records) = told.topics[0][1][0]
        if error == OFFSET_OUT_OF_RANGE:  # the topic was made anew
            log = TransactionLog()
            continue
        if error:
            raise KafkaError(f"{TRANSACTIONS_TOPIC} can't be read: error {error}")
        take(log, bytes(records or b""))
        if log.next_offset >= end:
            return log
        if not records:
            raise KafkaError(f"{TRANSACTIONS_TOPIC} is not read to its end: nothing at offset {log.next_offset}")


def take(log: TransactionLog, records: bytes) -> None:
    """Takes the batches of a Fetch, markers included; the last one may be cut short."""
    batches = MemoryRecords(records)
    while batches.has_next():
        batch: Any = batches.next_batch()
        if batch.next_offset <= log.next_offset:
            continue
        for record in batch:
            key = bytes(record.key or b"")
            if batch.is_control_batch:
                _, kind = _MARKER.unpack_from(key)
                log.mark(batch.producer_id, committed=kind == MARKER_COMMIT)
            else:
                value = None if record.value is None else bytes(record.value)
                log.enter(key, value, batch.producer_id if batch.is_transactional else None)
        log.next_offset = batch.next_offset
