"""Whether this sidecar can do its work: is somebody reading acknowledgements, and does Kafka answer."""

import asyncio
import time
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from services.sidecar.producing.producer import RecordProducer

FRESH_SECONDS = 1.0
"""Probes that come closer together share one answer."""


class Health:
    """Asks for the cluster's description with a small client of its own, as nothing else shows that Kafka is back."""

    def __init__(self, properties: dict[str, Any], producer: RecordProducer, *, timeout: float) -> None:
        self._admin = AdminClient(properties)
        self._producer = producer
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._asked_at = -FRESH_SECONDS
        self._fault: str | None = None

    def producer_fault(self) -> str | None:
        """What is wrong with the producer; None when it works."""
        return None if self._producer.is_alive else "nobody reads acknowledgements any more; restart this sidecar"

    async def kafka_fault(self) -> str | None:
        """Why Kafka cannot be used; None when it can. Answers within the time-out."""
        async with self._lock:
            if time.monotonic() - self._asked_at >= FRESH_SECONDS:
                self._fault = await self._ask()
                self._asked_at = time.monotonic()
            return self._fault

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(self._timeout):
                future = self._admin.describe_cluster(request_timeout=self._timeout)
                cluster = await asyncio.wrap_future(future)
        except TimeoutError:
            return f"Kafka does not answer within {self._timeout:g} s"
        except KafkaException as error:
            return f"Kafka does not answer: {error.args[0].str()}"
        if not cluster.nodes or cluster.cluster_id is None or cluster.controller is None:
            return "Kafka answers without nodes, cluster id or controller"
        return None
