"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

Clients send versions 0 to 3; brokers send 4 and 5 among themselves, for several transactions at once.
"""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32s,
    int64,
    message,
    topic_name,
    transaction_name,
)


@dataclass(slots=True)
class AddPartitionsToTxnTopic(Struct):
    name: str = topic_name()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = transaction_name()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message(api_key=24, kind=Kind.REQUEST, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class AddPartitionsToTxnRequest(Struct):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = transaction_name(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult(Struct):
    name: str = topic_name()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@dataclass(slots=True)
class AddPartitionsToTxnResult(Struct):
    transactional_id: str = transaction_name()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@message(api_key=24, kind=Kind.RESPONSE, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class AddPartitionsToTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)
