"""Requests about transactions that aiokafka does not have, in its own notation.

Fields and versions are those of Kafka's message specifications (KIP-98, KIP-360, KIP-664, KIP-890).
"""

from __future__ import annotations

from typing import Final

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

NAME: Final = CompactString("utf-8")
TAGS: Final = ("tags", TaggedFields)


class DescribeTransactionsResponse_v0(Response):  # type: ignore[misc]  # noqa: N801  # aiokafka: no types, its names
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", NAME),
                ("transaction_state", NAME),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", CompactArray(("topic", NAME), ("partitions", CompactArray(Int32)), TAGS)),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeTransactionsRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeTransactionsResponse_v0
    SCHEMA = Schema(("transactional_ids", CompactArray(NAME)), TAGS)


class ListTransactionsResponse_v0(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(NAME)),
        (
            "transaction_states",
            CompactArray(("transactional_id", NAME), ("producer_id", Int64), ("transaction_state", NAME), TAGS),
        ),
        TAGS,
    )


class ListTransactionsRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListTransactionsResponse_v0
    SCHEMA = Schema(("state_filters", CompactArray(NAME)), ("producer_id_filters", CompactArray(Int64)), TAGS)


class InitProducerIdResponse_v4(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 22
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16), ("producer_id", Int64), ("producer_epoch", Int16), TAGS
    )


class InitProducerIdRequest_v4(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 22
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = InitProducerIdResponse_v4
    SCHEMA = Schema(
        ("transactional_id", NAME),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        TAGS,
    )


class EndTxnResponse_v3(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 26
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16), TAGS)


class EndTxnRequest_v3(RequestStruct):  # type: ignore[misc]  # noqa: N801
    """The first protocol: the producer keeps its epoch."""

    API_KEY = 26
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = EndTxnResponse_v3
    SCHEMA = Schema(
        ("transactional_id", NAME),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("committed", Boolean),
        TAGS,
    )


class EndTxnResponse_v5(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 26
    API_VERSION = 5
    SCHEMA = InitProducerIdResponse_v4.SCHEMA


class EndTxnRequest_v5(RequestStruct):  # type: ignore[misc]  # noqa: N801
    """The second protocol (KIP-890): the end raises the producer's epoch."""

    API_KEY = 26
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = EndTxnResponse_v5
    SCHEMA = EndTxnRequest_v3.SCHEMA
