"""DescribeProducers (key 61): producer ids, epochs and sequences that a partition remembers."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int16, int32, int32s, int64, message, string, topic_name


@dataclass(slots=True)
class TopicRequest(Struct):
    name: str = topic_name()
    partition_indexes: list[int] = int32s()


@message(api_key=61, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeProducersRequest(Struct):
    topics: list[TopicRequest] = array(TopicRequest)


@dataclass(slots=True)
class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@dataclass(slots=True)
class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@dataclass(slots=True)
class TopicResponse(Struct):
    name: str = topic_name()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(api_key=61, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeProducersResponse(Struct):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
