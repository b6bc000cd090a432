"""WriteTxnMarkers (key 27): how a transaction ended, to the leaders of its partitions. Sent by coordinators, and by
administrators who abort a transaction that hangs."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32s,
    int64,
    message,
    topic_name,
)


@dataclass(slots=True)
class WritableTxnMarkerTopic(Struct):
    name: str = topic_name()
    partition_indexes: list[int] = int32s()


@dataclass(slots=True)
class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)


@message(api_key=27, kind=Kind.REQUEST, versions=(0, 2), flexible=1)
@dataclass(slots=True)
class WriteTxnMarkersRequest(Struct):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class WritableTxnMarkerTopicResult(Struct):
    name: str = topic_name()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@dataclass(slots=True)
class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(api_key=27, kind=Kind.RESPONSE, versions=(0, 2), flexible=1)
@dataclass(slots=True)
class WriteTxnMarkersResponse(Struct):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
