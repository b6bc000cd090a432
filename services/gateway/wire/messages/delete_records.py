"""DeleteRecords (key 21): the start of a log moves up."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int16, int32, int64, message, topic_name


@dataclass(slots=True)
class DeleteRecordsPartition(Struct):
    partition_index: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class DeleteRecordsTopic(Struct):
    name: str = topic_name()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(api_key=21, kind=Kind.REQUEST, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class DeleteRecordsRequest(Struct):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteRecordsTopicResult(Struct):
    name: str = topic_name()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(api_key=21, kind=Kind.RESPONSE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class DeleteRecordsResponse(Struct):
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
