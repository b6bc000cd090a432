"""Requests of a copy that aiokafka does not have, in its own notation.

Fields and versions are those of Kafka's message specifications (KIP-98, KIP-664).
"""

from __future__ import annotations

from typing import Final

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

NAME: Final = CompactString("utf-8")
TAGS: Final = ("tags", TaggedFields)


class DescribeProducersResponse_v0(Response):  # type: ignore[misc]  # noqa: N801  # aiokafka: no types, its names
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", NAME),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", NAME),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                TAGS,
                            ),
                        ),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeProducersRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeProducersResponse_v0
    SCHEMA = Schema(
        ("topics", CompactArray(("name", NAME), ("partition_indexes", CompactArray(Int32)), TAGS)),
        TAGS,
    )


class WriteTxnMarkersResponse_v1(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("name", NAME),
                        ("partitions", CompactArray(("partition_index", Int32), ("error_code", Int16), TAGS)),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class WriteTxnMarkersRequest_v1(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 27
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = WriteTxnMarkersResponse_v1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("committed", Boolean),
                ("topics", CompactArray(("name", NAME), ("partition_indexes", CompactArray(Int32)), TAGS)),
                ("coordinator_epoch", Int32),
                TAGS,
            ),
        ),
        TAGS,
    )
