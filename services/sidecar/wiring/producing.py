"""Assembles the parts that write to Kafka: one shared producer, transactions beside it, and the endpoints for both."""

import time
from functools import partial

from starlette.routing import Route

from services.sidecar.api.produce_requests import HeaderPolicy
from services.sidecar.api.producers import ProducerEndpoints
from services.sidecar.api.streaming_produce import ProduceStreams, StreamLimits
from services.sidecar.api.transactions import TransactionEndpoints
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.producing.producer import ProducerLimits, RecordProducer
from services.sidecar.producing.serializing import Serializer
from services.sidecar.producing.transactions import TransactionLimits, Transactions
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry.traffic import SidecarTraffic
from services.sidecar.wiring.kafka_properties import client_properties, producer_properties, transaction_properties


class ProducingParts:
    """The production of one sidecar, made within a running loop."""

    def __init__(
        self, settings: SidecarSettings, serializer: Serializer, audit: AuditTrail, traffic: SidecarTraffic
    ) -> None:
        self._settings = settings
        self._serializer = serializer
        self.producer = RecordProducer(
            producer_properties(settings),
            ProducerLimits(
                settings.max_queued_records,
                settings.max_queued_bytes,
                settings.queue_timeout_ms / 1000,
                settings.unknown_topic_timeout_ms / 1000,
            ),
            audit,
            traffic,
        )
        self._transactions = Transactions(
            partial(transaction_properties, settings),
            client_properties(settings),
            settings.transactional_ids or (f"kafka-mesh-sidecar-{settings.name}",),
            TransactionLimits(
                max_waiting=settings.max_waiting_transactions,
                seconds=settings.transaction_timeout_ms / 1000,
                keep_ms=settings.idempotency_keep_ms,
                max_keys=settings.idempotency_max_keys,
                max_bytes=settings.idempotency_max_bytes,
            ),
            audit,
            traffic,
        )
        self._headers = HeaderPolicy(settings.forward_authorization, settings.caller_id)
        self._streams = ProduceStreams(
            self.producer,
            serializer,
            self._headers,
            StreamLimits(settings.max_produce_streams, settings.max_line_bytes, settings.stream_idle_timeout_ms / 1000),
        )

    def routes(self) -> list[Route]:
        producers = ProducerEndpoints(
            self.producer,
            self._serializer,
            self._transactions,
            self._streams,
            max_request_bytes=self._settings.max_request_bytes,
            headers=self._headers,
        )
        transactions = TransactionEndpoints(
            self.producer,
            self._serializer,
            self._transactions,
            max_request_bytes=self._settings.max_request_bytes,
            headers=self._headers,
        )
        return [*producers.routes(), *transactions.routes()]

    def interrupt(self) -> None:
        """Streams take no more lines, answer their open lines, and end."""
        self._streams.interrupt()

    async def stop(self, timeout: float) -> None:
        """Waits for open records; records without an acknowledgement after `timeout` seconds fail."""
        until = time.monotonic() + timeout
        await self._transactions.stop(timeout)
        await self.producer.stop(max(until - time.monotonic(), 0))
