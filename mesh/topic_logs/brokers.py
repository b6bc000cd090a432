"""The brokers of one cluster, as a copy speaks to them: raw batches in and out, ends, producers, markers.

confluent-kafka has no raw batches, so these connections are aiokafka's. An error ends the copy's session; the next
session connects again, and reads from the target where it has to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiokafka.conn import create_conn
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest

from mesh.cluster_access import ClusterAccess, ClusterAccessError, cluster_access, reason_of
from mesh.cluster_properties import allowed
from mesh.connection_security import ConnectionSecurity, UnservedSecurityError, connection_properties
from mesh.exact_requests import Exactly
from mesh.rpc import routing
from mesh.settings import host_port
from mesh.topic_logs.batches import UNKNOWN, Writer
from mesh.topic_logs.messages import DescribeProducersRequest_v0, WriteTxnMarkersRequest_v1

REQUEST_TIMEOUT: Final = 15.0
"""Seconds for one request. A broker may wait for its replicas in this time."""
LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
DEBUGGER: Final = -2
"""To this replica id a leader tells the end of its own log, and to a consumer the high watermark."""
ALL_REPLICAS: Final = -1
WAIT_MS: Final = 200
"""The time that a broker waits for new records."""
REMEDIES: Final = {
    10: "raise max.message.bytes of the topic there to that of the source",
    18: "raise segment.bytes of the topic there to that of the source",
    19: "bring the replicas of the partition back, or lower min.insync.replicas there",
    20: "bring the replicas of the partition back, or lower min.insync.replicas there",
    29: "give the user of the cluster the rights that the page about moves names",
    31: "give the user of the cluster the right ClusterAction",
    44: "the broker's policy refuses the write: change the policy, or cancel the move",
    56: "see to the broker's disk: it is full or fails",
    87: "the broker refuses a record: compare the topic's settings on both clusters",
}
"""Kafka's error code -> the remedy for an operator."""
TOO_LARGE: Final = (10, 18)
"""The codes that say: larger than max.message.bytes, or than segment.bytes."""
_FAILURES: Final = (
    ClusterAccessError, IncompatibleBrokerVersion, KafkaError, NotImplementedError, OSError, TimeoutError,
    UnservedSecurityError,
)  # fmt: skip


class CopySetbackError(Exception):
    """The copy can't go on now. An operator reads the message."""


class TooLargeError(CopySetbackError):
    """The topic takes only smaller batches."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a Fetch for one partition, up to its last stable offset."""

    stable: int
    start: int
    aborted: Sequence[tuple[int, int]]
    """Producer ids, with the first offsets of their aborted transactions."""
    records: bytes


class LastBatch(NamedTuple):
    """A producer's last batch in a partition, as the leader remembers the producer."""

    producer_id: int
    epoch: int
    sequence: int
    """The sequence of the batch's last record; -1 for none."""
    timestamp_ms: int


class Brokers:
    """An asynchronous context. Each method raises CopySetbackError when the cluster does not do as it is asked."""

    def __init__(self, spec: routing.ClusterSpec, client_id: str) -> None:
        self.name = spec.cluster_name
        self._spec = spec
        self._client_id = client_id
        self._access: ClusterAccess | None = None
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._connections: dict[tuple[str, int], Any] = {}
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> Brokers:
        properties = connection_properties(allowed(self._spec.producer_config), allowed(self._spec.consumer_config))
        try:
            self._access = await cluster_access(self._spec.bootstrap_servers, ConnectionSecurity.of(properties))
        except _FAILURES as error:
            raise self._setback("connecting", error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    async def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none if there is no such topic. Learns their leaders."""
        told = await self._told("asked for its topics", self._ask_any(MetadataRequest([topic], False)))
        self._addresses = {node: (host, port) for node, host, port, _ in told.brokers}
        found = [each for error, name, _, each in told.topics if name == topic and not error]
        self._leaders |= {(topic, number): leader for each in found for _, number, leader, *_ in each}
        return sorted(number for each in found for _, number, *_ in each)

    async def range(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the offset behind the last record, of an open transaction too."""
        return await self._offset(topic, partition, EARLIEST), await self._offset(topic, partition, LATEST)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        size: int,
        wait_ms: int = WAIT_MS,
        isolation: int = READ_COMMITTED,
    ) -> Fetched:
        """Batches from this offset on, of `size` bytes at most, or one batch that is larger."""
        request = FetchRequest(wait_ms, 1, size, isolation, [(topic, [(partition, offset, size)])])
        told = await self._ask("read", topic, partition, request)
        if not told.topics:
            raise CopySetbackError(f"cluster {self.name!r} reads nothing of {topic}-{partition}: it throttles")
        _, error, _, stable, start, aborted, *_, records = told.topics[0][1][0]
        self._check("read", topic, partition, error)
        return Fetched(stable, start, aborted or (), records or b"")

    async def produce(self, topic: str, partition: int, batch: bytes) -> int:
        """Writes one batch to all replicas; the offset where it is."""
        request = ProduceRequest(None, ALL_REPLICAS, int(1000 * REQUEST_TIMEOUT), [(topic, [(partition, batch)])])
        told = await self._ask("written", topic, partition, request)
        _, error, offset, *_ = told.topics[0][1][0]
        self._check("written", topic, partition, error)
        return int(offset)

    async def mark(self, topic: str, partition: int, writer: Writer, number: int) -> None:
        """Writes so many markers of transactions that had no record: each takes one offset, and no reader sees it.

        This is the request with which Kafka's Admin.abortTransaction ends a transaction.
        """
        marker: tuple[object, ...] = (writer.producer_id, writer.epoch, False, [(topic, [partition], {})], 0, {})
        told = await self._ask("marked", topic, partition, Exactly(WriteTxnMarkersRequest_v1([marker] * number, {})))
        for _, topics, _ in told.markers:
            self._check("marked (this needs the right ClusterAction)", topic, partition, topics[0][1][0][1])

    async def writer(self, topic: str, partition: int, producer_id: int) -> Writer:
        """The producer as its partition's leader remembers it, ready to go on."""
        for known in await self.producers(topic, partition):
            if known.producer_id == producer_id:
                before = Writer(producer_id, known.epoch, known.sequence)
                return before.after(1)
        return Writer(producer_id, 0, 0)

    async def producers(self, topic: str, partition: int) -> list[LastBatch]:
        """The producers that the partition's leader remembers."""
        return (await self.producers_of(topic, [partition]))[partition]

    async def producers_of(self, topic: str, partitions: Iterable[int]) -> dict[int, list[LastBatch]]:
        """As `producers`, of several partitions: one question to each leader."""

        def request(numbers: list[int]) -> Any:
            return Exactly(DescribeProducersRequest_v0([(topic, numbers, {})], {}))

        told = await self._ask_leaders("asked for producers", topic, partitions, request)
        return {number: [LastBatch(*each[:4]) for each in answer[3]] for number, answer in told.items()}

    async def leader_ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The ends of the leaders' logs, with records that replicas do not have yet: one question to each leader."""
        return await self._ends(topic, partitions, DEBUGGER, READ_UNCOMMITTED)

    async def stable_ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The ends that readers of committed records see: before the first open transaction."""
        return await self._ends(topic, partitions, UNKNOWN, READ_COMMITTED)

    async def _ends(self, topic: str, partitions: Iterable[int], reader: int, isolation: int) -> dict[int, int]:
        def request(numbers: list[int]) -> Any:
            return OffsetRequest(reader, isolation, [(topic, [(number, LATEST) for number in numbers])])

        told = await self._ask_leaders("asked for its end", topic, partitions, request)
        return {number: int(answer[3]) for number, answer in told.items()}

    async def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records before this offset."""
        request = DeleteRecordsRequest([(topic, [(partition, offset)])], int(1000 * REQUEST_TIMEOUT))
        told = await self._ask("shortened", topic, partition, request)
        self._check("shortened", topic, partition, told.topics[0][1][0][2])

    async def _offset(self, topic: str, partition: int, which: int) -> int:
        request = OffsetRequest(UNKNOWN, READ_UNCOMMITTED, [(topic, [(partition, which)])])
        told = await self._ask("asked for its end", topic, partition, request)
        _, error, _, offset, *_ = told.topics[0][1][0]
        self._check("asked for its end", topic, partition, error)
        return int(offset)

    async def _ask(self, what: str, topic: str, partition: int, request: Any) -> Any:
        address = self._leader(topic, partition)
        return await self._told(f"{topic}-{partition} can't be {what}", self._send(address, request))

    async def _ask_leaders(
        self, what: str, topic: str, partitions: Iterable[int], request: Callable[[list[int]], Any]
    ) -> dict[int, Any]:
        """The part of each partition in the leaders' answers, whose second field is an error."""
        led: dict[tuple[str, int], list[int]] = {}
        for number in partitions:
            led.setdefault(self._leader(topic, number), []).append(number)
        sent = [
            self._told(f"{topic} can't be {what}", self._send(address, request(numbers)))
            for address, numbers in led.items()
        ]
        found = {each[0]: each for told in await asyncio.gather(*sent) for each in told.topics[0][1]}
        for number, each in found.items():
            self._check(what, topic, number, each[1])
        return found

    def _leader(self, topic: str, partition: int) -> tuple[str, int]:
        address = self._addresses.get(self._leaders.get((topic, partition), UNKNOWN))
        if address is None:
            raise CopySetbackError(f"cluster {self.name!r}: partition {topic}-{partition} has no leader now")
        return address

    async def _told(self, what: str, answer: Any) -> Any:
        try:
            async with asyncio.timeout(2 * REQUEST_TIMEOUT):
                return await answer
        except _FAILURES as error:
            raise self._setback(what, error) from error

    async def _ask_any(self, request: Any) -> Any:
        failed: list[str] = []
        for address in self._spec.bootstrap_servers:
            try:
                return await self._send(host_port(address), request)
            except (KafkaError, OSError, TimeoutError) as error:
                failed.append(f"{address}: {reason_of(error)}")
        raise KafkaError("; ".join(failed))

    async def _send(self, address: tuple[str, int], request: Any) -> Any:
        async with self._connecting:
            connection = self._connections.get(address)
            if connection is None or not connection.connected():
                assert self._access is not None
                arguments: Mapping[str, Any] = self._access.for_aiokafka()
                connection = self._connections[address] = await create_conn(
                    *address, client_id=self._client_id, request_timeout_ms=int(2000 * REQUEST_TIMEOUT), **arguments
                )
        return await connection.send(request)

    def _check(self, what: str, topic: str, partition: int, code: int) -> None:
        if code:
            setback = self._setback(f"{topic}-{partition} can't be {what}", for_code(code)())
            remedy = REMEDIES.get(code)
            kind = TooLargeError if code in TOO_LARGE else CopySetbackError
            raise kind(f"{setback}; {remedy}" if remedy else f"{setback}")

    def _setback(self, what: str, error: BaseException) -> CopySetbackError:
        return CopySetbackError(f"cluster {self.name!r}, {what}: {reason_of(error)}")
