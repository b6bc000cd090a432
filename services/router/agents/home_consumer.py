"""Consumers without a group on the home cluster: opened within a bound, and closed whatever the cluster does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer

from mesh.cluster_access import ClusterAccess

TIMEOUT = 10.0
"""Seconds to reach the cluster, and without an answer after which aiokafka opens a new connection."""
CLOSE_TIMEOUT = 2.0
"""Seconds that a close may take; a stop of the router by SIGTERM promises 3."""

log = structlog.get_logger(__name__)


def home_consumer(home: ClusterAccess, client_id: str) -> Any:
    """A consumer that is neither started nor assigned. If an offset is gone, the consumer says so and reads nothing."""
    return AIOKafkaConsumer(
        bootstrap_servers=list(home.bootstrap),
        client_id=client_id,
        enable_auto_commit=False,
        auto_offset_reset="none",
        request_timeout_ms=int(1000 * TIMEOUT),
        **home.for_aiokafka(),
    )


async def close(consumer: Any) -> None:
    """Ends the consumer within CLOSE_TIMEOUT, and raises nothing: the caller has nothing better to do about it."""
    closing = asyncio.create_task(_close(consumer), name="close a consumer")
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT)
    if not closing.done():
        log.error("a consumer of the home cluster does not close; the router goes on", seconds=CLOSE_TIMEOUT)
        closing.cancel()


async def _close(consumer: Any) -> None:
    """While a broker is gone, aiokafka lets the cancellation of its own fetch escape from its stop.

    The cancellation would end the caller, and leave connections that log in for ever with what the consumer began with.
    """
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await consumer.stop()
    with contextlib.suppress(Exception):
        await consumer._client.close()
