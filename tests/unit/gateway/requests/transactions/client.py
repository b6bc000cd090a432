"""A transactional client as the protocol has it, for simulated clusters: it tries again whatever it may."""

from dataclasses import dataclass, field
from typing import Any

from mesh.transactions import Identity
from services.gateway.requests.plan import Handle
from services.gateway.requests.records import produce
from services.gateway.requests.transactions import add_partitions, end, init_producer_id
from services.gateway.wire.errors import RETRIABLE, ErrorCode
from services.gateway.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from services.gateway.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.transactions.simulated import Simulation
from tests.unit.gateway.wire.records import batch

ATTEMPTS = 6
NOBODY = Identity(-1, -1)
FIRST, SECOND = 1, 2
"""Of the two protocols of transactions; the second is KIP-890."""
TRANSACTIONAL = 0x10


@dataclass(slots=True)
class Client:
    mesh: Simulation
    protocol: int = SECOND
    transactional_id: str = "tx"
    identity: Identity = NOBODY
    _sequences: dict[str, int] = field(default_factory=dict)

    def begin(self) -> int:
        answer = self._ask(init_producer_id.handle, InitProducerIdRequest(self.transactional_id, 60_000), 4)
        self.identity = Identity(answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        return int(answer.error_code)

    def write(self, topic: str, value: bytes) -> int:
        """The error of the record; 0 if it is acknowledged."""
        if self.protocol == FIRST:
            topics = [AddPartitionsToTxnTopic(topic, [0])]
            message = AddPartitionsToTxnRequest([], self.transactional_id, *self.identity, topics)
            added = self._ask(add_partitions.handle, message, 3)
            error = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if error:
                return int(error)
        sequence = self._sequences.get(topic, 0)
        producer_id, epoch = self.identity
        value = value.ljust(8)
        records = batch(value, producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL)
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])
        message_ = ProduceRequest(self.transactional_id, -1, 30_000, [data])
        answer = self._ask(produce.handle, message_, 11 if self.protocol == FIRST else 12)
        error = int(answer.responses[0].partition_responses[0].error_code)
        if not error:
            self._sequences[topic] = sequence + 1
        return error

    def end(self, *, commit: bool = True) -> int:
        message = EndTxnRequest(self.transactional_id, *self.identity, commit)
        answer = self._ask(end.handle, message, 4 if self.protocol == FIRST else 5)
        if not answer.error_code and self.protocol == SECOND:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        return int(answer.error_code)

    def transact(self, **values: bytes) -> int:
        """One record for each of these topics, in one transaction that is committed, or aborted if it can't be."""
        for topic, value in values.items():
            error = self.write(topic, value)
            if error:
                self.end(commit=False)
                return error
        error = self.end()
        if error == ErrorCode.TRANSACTION_ABORTABLE:
            self.end(commit=False)
        return error

    def _ask(self, handle: Handle, message: Struct, version: int) -> Any:
        """Tried again where the gateway has died, and upon errors that say so."""
        for _ in range(ATTEMPTS):
            answer = self.mesh.ask(handle, message, version)
            if answer is None:
                self.mesh.restart()
            elif error_of(answer) not in RETRIABLE:
                break
        assert answer is not None
        return answer


def error_of(answer: Any) -> int:
    """The first error in it."""
    if hasattr(answer, "responses"):
        return int(answer.responses[0].partition_responses[0].error_code)
    if hasattr(answer, "results_by_topic_v3_and_below"):
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return int(answer.error_code)
