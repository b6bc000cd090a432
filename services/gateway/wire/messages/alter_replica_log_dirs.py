"""AlterReplicaLogDirs (key 34): a broker keeps replicas in another of its directories."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int16, int32, int32s, message, string, topic_name


@dataclass(slots=True)
class AlterReplicaLogDirTopic(Struct):
    name: str = topic_name()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(api_key=34, kind=Kind.REQUEST, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class AlterReplicaLogDirsRequest(Struct):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = topic_name()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(api_key=34, kind=Kind.RESPONSE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class AlterReplicaLogDirsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
