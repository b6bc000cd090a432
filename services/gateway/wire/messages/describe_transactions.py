"""DescribeTransactions (key 65): what a coordinator knows of transactional ids."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    int16,
    int32,
    int32s,
    int64,
    message,
    string,
    topic_name,
    transaction_name,
    transaction_names,
)


@message(api_key=65, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeTransactionsRequest(Struct):
    transactional_ids: list[str] = transaction_names()


@dataclass(slots=True)
class TopicData(Struct):
    topic: str = topic_name()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = transaction_name()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(api_key=65, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeTransactionsResponse(Struct):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
