"""DescribeLogDirs (key 35): which replicas lie in a broker's directories, and how large they are."""

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
    string,
    topic_name,
)


@dataclass(slots=True)
class DescribableLogDirTopic(Struct):
    topic: str = topic_name()
    partitions: list[int] = int32s()


@message(api_key=35, kind=Kind.REQUEST, versions=(0, 5), flexible=2)
@dataclass(slots=True)
class DescribeLogDirsRequest(Struct):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable_since=0)


@dataclass(slots=True)
class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@dataclass(slots=True)
class DescribeLogDirsTopic(Struct):
    name: str = topic_name()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@dataclass(slots=True)
class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


@message(api_key=35, kind=Kind.RESPONSE, versions=(0, 5), flexible=2)
@dataclass(slots=True)
class DescribeLogDirsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
