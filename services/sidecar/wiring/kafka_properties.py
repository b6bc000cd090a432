"""The properties of a sidecar's Kafka clients: its settings in librdkafka's words."""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from mesh.secret_references import resolve_property
from services.sidecar.settings import SidecarSettings

FULL_QUEUE_MS = 10
"""The interval at which a client checks for room in its prefetch queue.

The queue is small, so the default of one second is too long.
"""


def client_properties(settings: SidecarSettings) -> dict[str, Any]:
    """librdkafka properties that all clients of this sidecar share."""
    return {
        "client.id": settings.name,
        "logger": logging.getLogger("librdkafka"),
        **_resolved(settings.kafka_properties),
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
    }


def _resolved(properties: Mapping[str, SecretStr]) -> dict[str, str]:
    """With the secrets that references refer to. Reads files."""
    return {name: resolve_property(name, value.get_secret_value()) for name, value in properties.items()}


def producer_properties(settings: SidecarSettings) -> dict[str, Any]:
    return {
        "statistics.interval.ms": settings.statistics_interval_ms,
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_bytes,
        "compression.type": settings.compression_type,
        **client_properties(settings),
        **_resolved(settings.producer_properties),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # Java clients put the same key on the same partition
        "message.max.bytes": settings.max_record_bytes,
        "message.timeout.ms": settings.delivery_timeout_ms,
        "topic.metadata.propagation.max.ms": settings.unknown_topic_timeout_ms,
        # twice the admitted size: Admission sets the bound, and this one must not apply first
        "queue.buffering.max.messages": 2 * settings.max_queued_records,
        "queue.buffering.max.kbytes": 2 * max(settings.max_queued_bytes, settings.max_request_bytes) // 1024 + 1,
    }


def audit_properties(settings: SidecarSettings) -> dict[str, Any]:
    """The properties of audit's own producer."""
    return {
        "compression.type": settings.compression_type,
        **client_properties(settings),
        **_resolved(settings.producer_properties),
    }


def consumer_properties(settings: SidecarSettings) -> dict[str, Any]:
    given = {**client_properties(settings), **_resolved(settings.consumer_properties)}
    return {
        "statistics.interval.ms": settings.statistics_interval_ms,
        "session.timeout.ms": settings.session_timeout_ms,
        # one answer of a broker must not be many times the prefetch size; the client needs room for a record
        "fetch.max.bytes": max(settings.prefetch_bytes, int(given.get("message.max.bytes", 1_000_000))),
        "max.partition.fetch.bytes": max(settings.prefetch_bytes // 4, 1),
        "fetch.queue.backoff.ms": FULL_QUEUE_MS,
        **given,
        "queued.max.messages.kbytes": max(settings.prefetch_bytes // 1024, 1),
        "allow.auto.create.topics": False,
    }


def transaction_properties(settings: SidecarSettings, transactional_id: str) -> dict[str, Any]:
    """The properties of a producer that writes transactions."""
    return {
        **producer_properties(settings),
        "statistics.interval.ms": 0,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "message.timeout.ms": min(settings.delivery_timeout_ms, settings.transaction_timeout_ms),
    }
