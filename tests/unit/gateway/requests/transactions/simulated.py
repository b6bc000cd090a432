"""Clusters in memory, as far as transactions go: coordinators of both protocols, a log with markers, and time.

They keep what Kafka promises of single clusters. A plan is played against them to its end, or until its gateway dies
after so many calls; what lies on the clusters then is for the next gateway to find.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from crc32c import crc32c

from mesh.compression import Codec
from mesh.transactions import STATE_TOPIC, TRANSACTIONS_TOPIC, Identity
from services.gateway.requests.conversions import Convert
from services.gateway.requests.knowledge import TopicKnowledge
from services.gateway.requests.memory import Memory
from services.gateway.requests.plan import (
    Ask,
    Body,
    Call,
    Command,
    Gather,
    Handle,
    MeshView,
    Outcome,
    RawResponse,
    Refresh,
    Request,
    Unreachable,
)
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import CRC_AT, CRC_FROM, read_batch_header
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import (
    SIZE_BYTES,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from services.gateway.wire.legacy.record import Group, Record
from services.gateway.wire.legacy.record_batches import Transactional, write_batch
from services.gateway.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from services.gateway.wire.messages.create_topics import CreatableTopicResult
from services.gateway.wire.messages.describe_producers import PartitionResponse, ProducerState, TopicResponse
from services.gateway.wire.messages.describe_transactions import TopicData, TransactionState
from services.gateway.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from services.gateway.wire.messages.list_transactions import TransactionState as ListedTransaction
from services.gateway.wire.messages.produce import PartitionProduceResponse, TopicProduceResponse
from services.gateway.wire.primitives import INT16, UINT32
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import World

SECOND_PROTOCOL_PRODUCE, SECOND_PROTOCOL_END = 12, 5
CONTROL = 0x20
_ATTRIBUTES_AT = 21

Place = tuple[str, int]


@dataclass(slots=True)
class Transaction:
    """One transactional id on one cluster."""

    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    timeout_ms: int = 60_000
    started_ms: int = -1
    partitions: set[Place] = field(default_factory=set)
    written: list[tuple[str, bytes]] = field(default_factory=list)
    """Topic and record, not ended yet."""
    firsts: dict[str, int] = field(default_factory=dict)
    """By topic, the offset of the transaction's first record, while the transaction is open."""

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.epoch)


@dataclass(slots=True)
class SimulatedCluster:
    name: str
    world: World
    first_id: int
    ids: dict[str, Transaction] = field(default_factory=dict)
    committed: list[tuple[str, bytes]] = field(default_factory=list)
    """Topic and record, as `read_committed` shows them."""
    log: list[bytes] = field(default_factory=list)
    """Batches of partition 0 of the topic for transactions."""
    records: dict[str, list[bytes]] = field(default_factory=dict)
    """By topic, batches of partition 0, markers included. Each takes one offset."""
    aborted: dict[str, list[tuple[AbortedTransaction, int]]] = field(default_factory=dict)
    """By topic, transactions with the offsets of their markers."""
    sequences: dict[Identity, int] = field(default_factory=dict)
    last_sequences: dict[str, dict[Identity, int]] = field(default_factory=dict)
    """By topic of clients and producer."""
    partitions: int = 0
    """Of the topic for transactions; 0: there is none."""
    away: bool = False
    most_timeout_ms: int = 900_000
    """As `transaction.max.timeout.ms`."""
    elections: int = 0
    """So many more producers are told NOT_COORDINATOR: the broker does not lead its new topic for transactions yet."""

    still_ending: int = 0
    """So many more AddPartitionsToTxn hear CONCURRENT_TRANSACTIONS: markers of the last transaction are not written."""

    skips_markers: bool = False
    """Whether the coordinator writes no markers to the topic for transactions: a partition without a leader counts as
    deleted (KAFKA-20734)."""

    def answer(self, call: Call) -> Struct:
        message = _message_of(call)
        match message:
            case InitProducerIdRequest() if self.elections:
                self.elections -= 1
                return InitProducerIdResponse(0, ErrorCode.NOT_COORDINATOR, -1, -1)
            case InitProducerIdRequest():
                return self._init(message)
            case DescribeTransactionsRequest():
                return DescribeTransactionsResponse(0, [self._describe(each) for each in message.transactional_ids])
            case AddPartitionsToTxnRequest():
                return self._add(message)
            case EndTxnRequest():
                return self._end(message, call.version)
            case ProduceRequest():
                return self._produce(message, call.version)
            case FetchRequest():
                return self._fetch(message)
            case ListOffsetsRequest():
                return self._list_offsets(message)
            case ListTransactionsRequest():
                return self._list(message)
            case DescribeProducersRequest():
                return self._producers(message.topics[0].name)
            case CreateTopicsRequest():
                self.partitions = message.topics[0].num_partitions
                return CreateTopicsResponse(topics=[CreatableTopicResult(name=message.topics[0].name)])
            case CreatePartitionsRequest():
                self.partitions = message.topics[0].count
                return CreatePartitionsResponse()
        raise AssertionError(f"nobody asks a cluster for this: {message!r}")

    def _init(self, message: InitProducerIdRequest) -> InitProducerIdResponse:
        if message.transaction_timeout_ms > self.most_timeout_ms:
            return InitProducerIdResponse(0, ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
        name = message.transactional_id or ""
        known = self.ids.get(name)
        if known is None:
            self.first_id += 1
            known = self.ids[name] = Transaction(self.first_id, -1)
        elif message.producer_id >= 0 and known.identity != (message.producer_id, message.producer_epoch):
            return InitProducerIdResponse(0, ErrorCode.PRODUCER_FENCED, -1, -1)
        if known.state == "Ongoing":
            self.finish(known, committed=False)
        known.epoch += 1
        known.state, known.timeout_ms = "Empty", message.transaction_timeout_ms
        return InitProducerIdResponse(0, 0, *known.identity)

    def _describe(self, name: str) -> TransactionState:
        known = self.ids.get(name)
        if known is None:
            return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(known.partitions):
            topics.setdefault(topic, []).append(partition)
        told = [TopicData(topic, found) for topic, found in topics.items()]
        return TransactionState(0, name, known.state, known.timeout_ms, known.started_ms, *known.identity, told)

    def _rightful(self, name: str, identity: Identity) -> Transaction | ErrorCode:
        known = self.ids.get(name)
        if known is None or known.producer_id != identity.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return known if known.epoch == identity.epoch else ErrorCode.PRODUCER_FENCED

    def _open(self, known: Transaction, place: Place) -> None:
        if known.state != "Ongoing":
            known.state, known.started_ms = "Ongoing", self.world.time_ms
        known.partitions.add(place)

    def _add(self, message: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        identity = Identity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        known = self._rightful(message.v3_and_below_transactional_id, identity)
        if self.still_ending:
            self.still_ending -= 1
            known = ErrorCode.CONCURRENT_TRANSACTIONS
        results = []
        for topic in message.v3_and_below_topics:
            if isinstance(known, Transaction):
                for partition in topic.partitions:
                    self._open(known, (topic.name, partition))
            error = known if isinstance(known, ErrorCode) else 0
            told = [AddPartitionsToTxnPartitionResult(partition, error) for partition in topic.partitions]
            results.append(AddPartitionsToTxnTopicResult(topic.name, told))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _end(self, message: EndTxnRequest, version: int) -> EndTxnResponse:
        second = version >= SECOND_PROTOCOL_END
        known = self.ids.get(message.transactional_id)
        if known is None or known.producer_id != message.producer_id:
            return EndTxnResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        done = "CompleteCommit" if message.committed else "CompleteAbort"
        if second and message.producer_epoch == known.epoch - 1 and known.state.startswith("Complete"):
            error = 0 if known.state == done else ErrorCode.INVALID_TXN_STATE
            return EndTxnResponse(0, error, *known.identity)
        if message.producer_epoch != known.epoch:
            return EndTxnResponse(0, ErrorCode.PRODUCER_FENCED)
        if known.state == "Ongoing":
            self.finish(known, committed=message.committed)
            known.epoch += second
        elif second and not message.committed:
            known.state = done
            known.epoch += 1
        elif second or known.state != done:
            return EndTxnResponse(0, ErrorCode.INVALID_TXN_STATE)
        return EndTxnResponse(0, 0, *(known.identity if second else (-1, -1)))

    def finish(self, known: Transaction, *, committed: bool) -> None:
        if committed:
            self.committed += known.written
        if (TRANSACTIONS_TOPIC, 0) in known.partitions and not self.skips_markers:
            self._append(_marker(known.identity, committed=committed))
        for topic, first in known.firsts.items():
            marker = self._keep(topic, _marker(known.identity, committed=committed))
            if not committed:
                self.aborted.setdefault(topic, []).append((AbortedTransaction(known.producer_id, first), marker))
        known.written = []
        known.firsts = {}
        known.partitions = set()
        known.state = "CompleteCommit" if committed else "CompleteAbort"

    def _list(self, message: ListTransactionsRequest) -> ListTransactionsResponse:
        open_since_ms = self.world.time_ms - message.duration_filter
        told = [
            ListedTransaction(name, known.producer_id, known.state)
            for name, known in self.ids.items()
            if known.state in message.state_filters and known.started_ms < open_since_ms
        ]
        return ListTransactionsResponse(transaction_states=told)

    def expire(self) -> None:
        """The coordinator aborts the transactions whose time is over."""
        for name, known in self.ids.items():
            if known.state == "Ongoing" and self.world.time_ms - known.started_ms >= known.timeout_ms:
                self.time_out(name)

    def time_out(self, name: str) -> None:
        """The coordinator aborts what is open."""
        known = self.ids[name]
        self.finish(known, committed=False)
        known.epoch += 1

    def _produce(self, message: ProduceRequest, version: int) -> ProduceResponse:
        answers = []
        for topic in message.topic_data:
            parts = []
            for part in topic.partition_data:
                records = bytes(part.records or b"")
                error = self._write(message.transactional_id, (topic.name, part.index), records, version)
                parts.append(PartitionProduceResponse(part.index, error, -1 if error else 0))
            answers.append(TopicProduceResponse(topic.name, partition_responses=parts))
        return ProduceResponse(answers)

    def _write(self, name: str | None, place: Place, records: bytes, version: int) -> int:
        header = read_batch_header(records, 0, len(records))
        if name is not None:
            identity = Identity(header.producer_id, header.producer_epoch)
            known = self._rightful(name, identity)
            if isinstance(known, ErrorCode):
                return ErrorCode.INVALID_PRODUCER_EPOCH if known is ErrorCode.PRODUCER_FENCED else known
            if version >= SECOND_PROTOCOL_PRODUCE:
                self._open(known, place)
            elif known.state != "Ongoing" or place not in known.partitions:
                return ErrorCode.INVALID_TXN_STATE
            if place[0] != TRANSACTIONS_TOPIC:
                known.written.append((place[0], records[-8:]))
                known.firsts.setdefault(place[0], self._keep(place[0], records))
                self.last_sequences.setdefault(place[0], {})[identity] = header.base_sequence
            elif header.base_sequence <= self.sequences.get(identity, -1):
                return 0  # a repetition
            else:
                self.sequences[identity] = header.base_sequence
        if place[0] == TRANSACTIONS_TOPIC:
            self._append(records)
        return 0

    def _keep(self, topic: str, batch: bytes) -> int:
        kept = self.records.setdefault(topic, [])
        kept.append(len(kept).to_bytes(8, "big") + batch[8:])
        return len(kept) - 1

    def stable(self, topic: str) -> int:
        """The last stable offset of partition 0."""
        firsts = [known.firsts[topic] for known in self.ids.values() if topic in known.firsts]
        return min(firsts, default=len(self.records.get(topic, ())))

    def _append(self, batch: bytes) -> None:
        self.log.append(len(self.log).to_bytes(8, "big") + batch[8:])

    def _fetch(self, message: FetchRequest) -> FetchResponse:
        if message.topics[0].topic != TRANSACTIONS_TOPIC:
            return FetchResponse(responses=[self._committed(topic) for topic in message.topics])
        (partition,) = message.topics[0].partitions
        records = b"".join(self.log[partition.fetch_offset : partition.fetch_offset + 2])
        told = PartitionData(0, 0, len(self.log), records=records)
        return FetchResponse(responses=[FetchableTopicResponse(TRANSACTIONS_TOPIC, partitions=[told])])

    def _committed(self, topic: FetchTopic) -> FetchableTopicResponse:
        (partition,) = topic.partitions
        kept, stable = self.records.get(topic.topic, []), self.stable(topic.topic)
        records = b"".join(kept[partition.fetch_offset : stable])
        aborted = [each for each, marker in self.aborted.get(topic.topic, ()) if marker >= partition.fetch_offset]
        told = PartitionData(0, 0, len(kept), stable, 0, aborted_transactions=aborted, records=records)
        return FetchableTopicResponse(topic.topic, partitions=[told])

    def _list_offsets(self, message: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in message.topics:
            end = len(self.log)
            if topic.name != TRANSACTIONS_TOPIC:
                end = self.stable(topic.name) if message.isolation_level else len(self.records.get(topic.name, ()))
            parts = [ListOffsetsPartitionResponse(part.partition_index, offset=end) for part in topic.partitions]
            topics.append(ListOffsetsTopicResponse(topic.name, parts))
        return ListOffsetsResponse(topics=topics)

    def _producers(self, topic: str) -> DescribeProducersResponse:
        sequences = self.sequences if topic == TRANSACTIONS_TOPIC else self.last_sequences.get(topic, {})
        active = [ProducerState(i.producer_id, i.epoch, last) for i, last in sequences.items()]
        return DescribeProducersResponse(0, [TopicResponse(topic, [PartitionResponse(0, 0, None, active)])])

    def learn(self) -> None:
        """What a gateway hears of the cluster's topics when it asks."""
        knowledge = self.world.clusters[self.name]
        broker = next(iter(knowledge.brokers))
        if self.partitions:
            leaders = (broker,) * self.partitions
            knowledge.topics[TRANSACTIONS_TOPIC] = TopicKnowledge(TRANSACTIONS_TOPIC, bytes(16), leaders)


def _message_of(call: Call) -> Struct:
    if isinstance(call.message, Struct):
        return call.message
    if isinstance(call.message, Body):
        return decode(ProduceRequest, call.version, b"".join(bytes(piece) for piece in call.message.pieces), 0)
    assert call.key == ApiKey.PRODUCE
    frame = call.message.frame
    return decode(ProduceRequest, call.version, frame, parse_request_header(frame, SIZE_BYTES, len(frame)).body_offset)


def _marker(identity: Identity, *, committed: bool) -> bytes:
    record = Record(0, 0, INT16.pack(0) + INT16.pack(committed), b"\x00\x00\x00\x00\x00\x00")
    made = bytearray(write_batch([Group(Codec.NONE, False, iter([record]), 1)], 1, Transactional(*identity, -1)) or b"")
    made[_ATTRIBUTES_AT + 1] |= CONTROL
    UINT32.pack_into(made, CRC_AT, crc32c(memoryview(made)[CRC_FROM:]))
    return bytes(made)


def _as_asked(call: Call, answer: Struct) -> Outcome:
    if not call.raw:
        return answer
    frame = memoryview(bytearray(encode_response(answer, call.version, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), call.key, call.version)
    return RawResponse(frame, header.body_offset, call.version)


@dataclass(slots=True)
class Simulation:
    """A mesh of simulated clusters, the first of them the home of all ids, and one gateway at a time."""

    world: World = field(init=False)
    clusters: dict[str, SimulatedCluster] = field(init=False)
    calls: int = 0
    """What the living gateway has asked for."""
    dies_after: int = 1 << 30
    rounds: int = 0
    """The number of rounds of calls that were sent together, and that the plan waits for."""
    on_call: Callable[[Call], None] | None = None
    loses: Callable[[Call], bool] = lambda call: False
    """Whether the answer to this call gets lost."""

    def __post_init__(self) -> None:
        self.world = World({"c1": ["apples"], "c2": ["bananas"], "c3": ["cherries"]})
        self.clusters = {
            name: SimulatedCluster(name, self.world, 1000 * n) for n, name in enumerate(self.world.clusters, start=1)
        }
        self.restart()

    def restart(self, *, dies_after: int = 1 << 30) -> None:
        """Another gateway, which knows nothing."""
        self.calls, self.dies_after = 0, dies_after
        self.world.memory = Memory()
        for knowledge in self.world.clusters.values():
            knowledge.topics.pop(TRANSACTIONS_TOPIC, None)
            broker = next(iter(knowledge.brokers))
            knowledge.topics[STATE_TOPIC] = TopicKnowledge(STATE_TOPIC, bytes(16), (broker,))

    def pass_time(self, ms: int) -> None:
        self.world.time_ms += ms
        self.world.now += ms / 1000
        for cluster in self.clusters.values():
            cluster.expire()

    def ask(self, handle: Handle, message: Struct, version: int) -> Any:
        """The answer to a client's request; None if the gateway died before there was one."""
        frame = memoryview(bytearray(encode_request(message, version, 7, "test")))
        answer = self.play(handle(Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame), self.view()))
        if isinstance(answer, RawResponse):
            return answer.decode(FetchResponse if isinstance(message, FetchRequest) else ProduceResponse)
        return answer

    def view(self) -> MeshView:
        return replace(self.world.view())

    def play(self, plan: Generator[Command, Any, Any]) -> Any:
        result: Any = None
        while True:
            try:
                command = plan.send(result)
            except StopIteration as stop:
                return stop.value
            match command:
                case Ask(calls) | Gather(calls):
                    self.rounds += not isinstance(command, Gather) or command.wait_s > 0
                    outcomes = list(self._outcomes(calls))
                    if len(outcomes) < len(calls):
                        plan.close()
                        return None
                    result = tuple(outcomes)
                case Refresh(cluster):
                    if self.clusters[cluster].away:
                        result = Unreachable(cluster, "away", never_sent=True)
                    else:
                        self.clusters[cluster].learn()
                        result = None
                case Convert(function, arguments):
                    result = function(*arguments)
                case _:
                    result = None

    def _outcomes(self, calls: tuple[Call, ...]) -> Iterator[Outcome]:
        for call in calls:
            if self.calls >= self.dies_after:
                return
            self.calls += 1
            if self.on_call is not None:
                self.on_call(call)
            cluster = self.clusters[call.cluster]
            if cluster.away:
                yield Unreachable(call.cluster, "away", never_sent=True)
            else:
                answer = _as_asked(call, cluster.answer(call))
                yield Unreachable(call.cluster, "connection lost") if self.loses(call) else answer

    def _read(self, answer: Any) -> Any:
        return answer.decode(ProduceResponse) if isinstance(answer, RawResponse) else answer
