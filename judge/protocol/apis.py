"""The requests that the judge's own client makes, each in one version: Kafka 3.0 and newer speak them all."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from judge.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE,
    STRING,
    Message,
    ProtocolError,
    Reader,
    Type,
    array,
    struct_of,
)


@dataclass(frozen=True, slots=True)
class Api:
    name: str
    key: int
    version: int
    request: Type
    response: Type

    def frame(self, correlation_id: int, client_id: str, message: Message) -> bytes:
        name = client_id.encode()
        head = struct.pack(">hhih", self.key, self.version, correlation_id, len(name)) + name + b"\0"
        body = head + self.request.write(message)
        return struct.pack(">i", len(body)) + body

    def answer(self, correlation_id: int, data: bytes) -> Message:
        reader = Reader(data, 4)
        [told] = struct.unpack_from(">i", data)
        if told != correlation_id:
            raise ProtocolError(f"{self.name}: the answer is to request {told}, {correlation_id} was asked")
        if reader.varint():
            raise ProtocolError(f"{self.name}: tags in the header of an answer")
        found: Message = self.response.read(reader)
        if reader.at != len(data):
            raise ProtocolError(f"{self.name}: {len(data) - reader.at} bytes follow the answer")
        return found


_PARTITIONS = array(INT32)
_THROTTLE = {"throttle_ms": INT32}

METADATA = Api(
    "Metadata",
    3,
    9,
    struct_of(
        {"topics": array({"name": STRING}), "create": BOOL, "cluster_operations": BOOL, "topic_operations": BOOL}
    ),
    struct_of(
        {
            **_THROTTLE,
            "brokers": array({"node_id": INT32, "host": STRING, "port": INT32, "rack": NULLABLE}),
            "cluster_id": NULLABLE,
            "controller_id": INT32,
            "topics": array(
                {
                    "error": INT16,
                    "name": STRING,
                    "internal": BOOL,
                    "partitions": array(
                        {
                            "error": INT16,
                            "partition": INT32,
                            "leader": INT32,
                            "leader_epoch": INT32,
                            "replicas": _PARTITIONS,
                            "in_sync": _PARTITIONS,
                            "offline": _PARTITIONS,
                        }
                    ),
                    "operations": INT32,
                }
            ),
            "operations": INT32,
        }
    ),
)
PRODUCE = Api(
    "Produce",
    0,
    9,
    struct_of(
        {
            "transactional_id": NULLABLE,
            "acks": INT16,
            "timeout_ms": INT32,
            "topics": array({"name": STRING, "partitions": array({"partition": INT32, "records": BYTES})}),
        }
    ),
    struct_of(
        {
            "topics": array(
                {
                    "name": STRING,
                    "partitions": array(
                        {
                            "partition": INT32,
                            "error": INT16,
                            "base_offset": INT64,
                            "append_ms": INT64,
                            "log_start": INT64,
                            "record_errors": array({"index": INT32, "message": NULLABLE}),
                            "message": NULLABLE,
                        }
                    ),
                }
            ),
            **_THROTTLE,
        }
    ),
)
FETCH = Api(
    "Fetch",
    1,
    12,
    struct_of(
        {
            "replica_id": INT32,
            "max_wait_ms": INT32,
            "min_bytes": INT32,
            "max_bytes": INT32,
            "isolation": INT8,
            "session_id": INT32,
            "session_epoch": INT32,
            "topics": array(
                {
                    "name": STRING,
                    "partitions": array(
                        {
                            "partition": INT32,
                            "leader_epoch": INT32,
                            "offset": INT64,
                            "last_epoch": INT32,
                            "log_start": INT64,
                            "max_bytes": INT32,
                        }
                    ),
                }
            ),
            "forgotten": array({"name": STRING, "partitions": _PARTITIONS}),
            "rack": STRING,
        }
    ),
    struct_of(
        {
            **_THROTTLE,
            "error": INT16,
            "session_id": INT32,
            "topics": array(
                {
                    "name": STRING,
                    "partitions": array(
                        {
                            "partition": INT32,
                            "error": INT16,
                            "high_watermark": INT64,
                            "last_stable": INT64,
                            "log_start": INT64,
                            "aborted": array({"producer_id": INT64, "first_offset": INT64}),
                            "read_replica": INT32,
                            "records": BYTES,
                        }
                    ),
                }
            ),
        }
    ),
)
LIST_OFFSETS = Api(
    "ListOffsets",
    2,
    6,
    struct_of(
        {
            "replica_id": INT32,
            "isolation": INT8,
            "topics": array(
                {
                    "name": STRING,
                    "partitions": array({"partition": INT32, "leader_epoch": INT32, "timestamp": INT64}),
                }
            ),
        }
    ),
    struct_of(
        {
            **_THROTTLE,
            "topics": array(
                {
                    "name": STRING,
                    "partitions": array(
                        {"partition": INT32, "error": INT16, "timestamp": INT64, "offset": INT64, "leader_epoch": INT32}
                    ),
                }
            ),
        }
    ),
)
FIND_COORDINATOR = Api(
    "FindCoordinator",
    10,
    4,
    struct_of({"key_type": INT8, "keys": array(STRING)}),
    struct_of(
        {
            **_THROTTLE,
            "coordinators": array(
                {"key": STRING, "node_id": INT32, "host": STRING, "port": INT32, "error": INT16, "message": NULLABLE}
            ),
        }
    ),
)
INIT_PRODUCER_ID = Api(
    "InitProducerId",
    22,
    4,
    struct_of({"transactional_id": NULLABLE, "timeout_ms": INT32, "producer_id": INT64, "epoch": INT16}),
    struct_of({**_THROTTLE, "error": INT16, "producer_id": INT64, "epoch": INT16}),
)
_TXN = {"transactional_id": STRING, "producer_id": INT64, "epoch": INT16}
ADD_PARTITIONS = Api(
    "AddPartitionsToTxn",
    24,
    3,
    struct_of({**_TXN, "topics": array({"name": STRING, "partitions": _PARTITIONS})}),
    struct_of(
        {
            **_THROTTLE,
            "topics": array({"name": STRING, "partitions": array({"partition": INT32, "error": INT16})}),
        }
    ),
)
END_TXN = Api("EndTxn", 26, 3, struct_of({**_TXN, "commit": BOOL}), struct_of({**_THROTTLE, "error": INT16}))
DESCRIBE_TRANSACTIONS = Api(
    "DescribeTransactions",
    65,
    0,
    struct_of({"ids": array(STRING)}),
    struct_of(
        {
            **_THROTTLE,
            "states": array(
                {
                    "error": INT16,
                    "transactional_id": STRING,
                    "state": STRING,
                    "timeout_ms": INT32,
                    "started_ms": INT64,
                    "producer_id": INT64,
                    "epoch": INT16,
                    "topics": array({"name": STRING, "partitions": _PARTITIONS}),
                }
            ),
        }
    ),
)
OFFSET_COMMIT = Api(
    "OffsetCommit",
    8,
    8,
    struct_of(
        {
            "group": STRING,
            "generation": INT32,
            "member": STRING,
            "instance": NULLABLE,
            "topics": array(
                {
                    "name": STRING,
                    "partitions": array(
                        {"partition": INT32, "offset": INT64, "leader_epoch": INT32, "metadata": NULLABLE}
                    ),
                }
            ),
        }
    ),
    struct_of(
        {
            **_THROTTLE,
            "topics": array({"name": STRING, "partitions": array({"partition": INT32, "error": INT16})}),
        }
    ),
)
OFFSET_FETCH = Api(
    "OffsetFetch",
    9,
    8,
    struct_of(
        {
            "groups": array({"group": STRING, "topics": array({"name": STRING, "partitions": _PARTITIONS})}),
            "stable": BOOL,
        }
    ),
    struct_of(
        {
            **_THROTTLE,
            "groups": array(
                {
                    "group": STRING,
                    "topics": array(
                        {
                            "name": STRING,
                            "partitions": array(
                                {
                                    "partition": INT32,
                                    "offset": INT64,
                                    "leader_epoch": INT32,
                                    "metadata": NULLABLE,
                                    "error": INT16,
                                }
                            ),
                        }
                    ),
                    "error": INT16,
                }
            ),
        }
    ),
)
CREATE_TOPICS = Api(
    "CreateTopics",
    19,
    5,
    struct_of(
        {
            "topics": array(
                {
                    "name": STRING,
                    "partitions": INT32,
                    "replication": INT16,
                    "assignments": array({"partition": INT32, "brokers": _PARTITIONS}),
                    "configs": array({"name": STRING, "value": NULLABLE}),
                }
            ),
            "timeout_ms": INT32,
            "validate_only": BOOL,
        }
    ),
    struct_of(
        {
            **_THROTTLE,
            "topics": array(
                {
                    "name": STRING,
                    "error": INT16,
                    "message": NULLABLE,
                    "partitions": INT32,
                    "replication": INT16,
                    "configs": array(
                        {"name": STRING, "value": NULLABLE, "read_only": BOOL, "source": INT8, "sensitive": BOOL}
                    ),
                }
            ),
        }
    ),
)
INCREMENTAL_ALTER_CONFIGS = Api(
    "IncrementalAlterConfigs",
    44,
    1,
    struct_of(
        {
            "resources": array(
                {
                    "type": INT8,
                    "name": STRING,
                    "configs": array({"name": STRING, "operation": INT8, "value": NULLABLE}),
                }
            ),
            "validate_only": BOOL,
        }
    ),
    struct_of({**_THROTTLE, "responses": array({"error": INT16, "message": NULLABLE, "type": INT8, "name": STRING})}),
)
