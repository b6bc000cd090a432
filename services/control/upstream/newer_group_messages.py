"""Requests about share groups and streams groups that aiokafka does not have, in its own notation.

Fields and versions are those of Kafka's message specifications (KIP-848, KIP-932, KIP-1071, KIP-1226).
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
)

from services.control.upstream.transaction_messages import NAME, TAGS

PARTITIONS: Final = ("partitions", CompactArray(Int32))


class Uuid:
    """16 bytes."""

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class Optional:
    """A struct that may be absent: a byte says whether it follows."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def decode(self, data: BytesIO) -> Any:
        return None if Int8.decode(data) < 0 else self._schema.decode(data)


class ListGroupsResponse_v5(Response):  # type: ignore[misc]  # noqa: N801  # aiokafka: no types, its names
    API_KEY = 16
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(("group", NAME), ("protocol_type", NAME), ("state", NAME), ("type", NAME), TAGS),
        ),
        TAGS,
    )


class ListGroupsRequest_v5(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponse_v5
    SCHEMA = Schema(("states_filter", CompactArray(NAME)), ("types_filter", CompactArray(NAME)), TAGS)


_ASSIGNED: Final = CompactArray(("topic_id", Uuid), ("topic", NAME), PARTITIONS, TAGS)


class ShareGroupDescribeResponse_v1(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 77
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", NAME),
                ("group", NAME),
                ("state", NAME),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor", NAME),
                (
                    "members",
                    CompactArray(
                        ("member_id", NAME),
                        ("rack_id", NAME),
                        ("member_epoch", Int32),
                        ("client_id", NAME),
                        ("client_host", NAME),
                        ("subscribed_topics", CompactArray(NAME)),
                        ("assignment", Schema(("topics", _ASSIGNED), TAGS)),
                        TAGS,
                    ),
                ),
                ("authorized_operations", Int32),
                TAGS,
            ),
        ),
        TAGS,
    )


class ShareGroupDescribeRequest_v1(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 77
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ShareGroupDescribeResponse_v1
    SCHEMA = Schema(("groups", CompactArray(NAME)), ("authorized_operations", Boolean), TAGS)


class DescribeShareGroupOffsetsResponse_v1(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 90
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group", NAME),
                (
                    "topics",
                    CompactArray(
                        ("topic", NAME),
                        ("topic_id", Uuid),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("start_offset", Int64),
                                ("leader_epoch", Int32),
                                ("lag", Int64),
                                ("error_code", Int16),
                                ("error_message", NAME),
                                TAGS,
                            ),
                        ),
                        TAGS,
                    ),
                ),
                ("error_code", Int16),
                ("error_message", NAME),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeShareGroupOffsetsRequest_v1(RequestStruct):  # type: ignore[misc]  # noqa: N801
    """All topics of a group, if its `topics` is None."""

    API_KEY = 90
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeShareGroupOffsetsResponse_v1
    SCHEMA = Schema(
        (
            "groups",
            CompactArray(("group", NAME), ("topics", CompactArray(("topic", NAME), PARTITIONS, TAGS)), TAGS),
        ),
        TAGS,
    )


class AlterShareGroupOffsetsResponse_v0(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 91
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", NAME),
        (
            "responses",
            CompactArray(
                ("topic", NAME),
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(("partition", Int32), ("error_code", Int16), ("error_message", NAME), TAGS),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class AlterShareGroupOffsetsRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 91
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = AlterShareGroupOffsetsResponse_v0
    SCHEMA = Schema(
        ("group", NAME),
        (
            "topics",
            CompactArray(
                ("topic", NAME),
                ("partitions", CompactArray(("partition", Int32), ("start_offset", Int64), TAGS)),
                TAGS,
            ),
        ),
        TAGS,
    )


_KEY_VALUES: Final = CompactArray(("key", NAME), ("value", NAME), TAGS)
_TOPICS: Final = CompactArray(
    ("name", NAME), ("partitions", Int32), ("replication_factor", Int16), ("settings", _KEY_VALUES), TAGS
)
_SUBTOPOLOGIES: Final = CompactArray(
    ("subtopology", NAME),
    ("source_topics", CompactArray(NAME)),
    ("repartition_sink_topics", CompactArray(NAME)),
    ("changelog_topics", _TOPICS),
    ("repartition_source_topics", _TOPICS),
    TAGS,
)
_TASKS: Final = CompactArray(("subtopology", NAME), PARTITIONS, TAGS)
_TASK_OFFSETS: Final = CompactArray(("subtopology", NAME), ("partition", Int32), ("offset", Int64), TAGS)
_TASKS_OF_MEMBER: Final = Schema(("active", _TASKS), ("standby", _TASKS), ("warmup", _TASKS), TAGS)


class StreamsGroupDescribeResponse_v0(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 89
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", NAME),
                ("group", NAME),
                ("state", NAME),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("topology", Optional(Schema(("epoch", Int32), ("subtopologies", _SUBTOPOLOGIES), TAGS))),
                (
                    "members",
                    CompactArray(
                        ("member_id", NAME),
                        ("member_epoch", Int32),
                        ("instance_id", NAME),
                        ("rack_id", NAME),
                        ("client_id", NAME),
                        ("client_host", NAME),
                        ("topology_epoch", Int32),
                        ("process_id", NAME),
                        ("user_endpoint", Optional(Schema(("host", NAME), ("port", Int16), TAGS))),
                        ("client_tags", _KEY_VALUES),
                        ("task_offsets", _TASK_OFFSETS),
                        ("task_end_offsets", _TASK_OFFSETS),
                        ("assignment", _TASKS_OF_MEMBER),
                        ("target_assignment", _TASKS_OF_MEMBER),
                        ("is_classic", Boolean),
                        TAGS,
                    ),
                ),
                ("authorized_operations", Int32),
                TAGS,
            ),
        ),
        TAGS,
    )


class StreamsGroupDescribeRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 89
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = StreamsGroupDescribeResponse_v0
    SCHEMA = Schema(("groups", CompactArray(NAME)), ("authorized_operations", Boolean), TAGS)
