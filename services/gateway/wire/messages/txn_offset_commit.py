"""TxnOffsetCommit (key 28): offsets of a group that count once the transaction is committed."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    group_name,
    int16,
    int32,
    int64,
    message,
    string,
    topic_name,
    transaction_name,
    uuid,
)


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable_since=0)


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic(Struct):
    name: str = topic_name(until=5, ignorable=True)
    topic_id: bytes = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(api_key=28, kind=Kind.REQUEST, versions=(0, 6), flexible=3)
@dataclass(slots=True)
class TxnOffsetCommitRequest(Struct):
    transactional_id: str = transaction_name()
    group_id: str = group_name()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic(Struct):
    name: str = topic_name(until=5, ignorable=True)
    topic_id: bytes = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(api_key=28, kind=Kind.RESPONSE, versions=(0, 6), flexible=3)
@dataclass(slots=True)
class TxnOffsetCommitResponse(Struct):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
