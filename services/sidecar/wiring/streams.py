"""Puts together the topologies that the settings ask for."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from starlette.routing import Route

from services.sidecar.api.streams import StreamEndpoints
from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.delivering.deliverer import Deliverer
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.settings import SidecarSettings
from services.sidecar.streams.assignment import RoundLimits
from services.sidecar.streams.backend import DeliveredBackend
from services.sidecar.streams.loading import references
from services.sidecar.streams.plan import Plan
from services.sidecar.streams.processing import WorkerOptions
from services.sidecar.streams.running_topology import Surroundings
from services.sidecar.streams.streams import Streams
from services.sidecar.streams.writing import RECORD_OVERHEAD
from services.sidecar.wiring.delivering import delivery_policy
from services.sidecar.wiring.kafka_properties import client_properties, consumer_properties, transaction_properties
from services.sidecar.wiring.shared_parts import SharedParts


class StreamsParts:
    """A sidecar's topologies, made within a running loop.

    TopologyError if the settings name one that does not exist.
    """

    def __init__(self, shared: SharedParts) -> None:
        settings = shared.settings
        self._deliverer: Deliverer | None = None
        if settings.streams:
            policy = delivery_policy(settings, has_dead_letters=settings.dead_letter_enabled)
            self._deliverer = Deliverer(shared.backend, policy, ReplyWriter(shared.serializer))
        self.streams = _streams(shared, self._deliverer)
        self._endpoints = StreamEndpoints(self.streams, read_seconds=settings.streams_read_timeout_ms / 1000)

    def routes(self) -> list[Route]:
        return self._endpoints.routes()

    def admin_routes(self) -> list[Route]:
        return self._endpoints.admin_routes()

    async def fault(self) -> str | None:
        """Which topologies keep this sidecar from being ready."""
        return await self.streams.fault()

    def states(self) -> dict[str, str]:
        """How each topology does, by name."""
        return {one.name: one.state.value for one in self.streams.statuses()}

    async def start(self) -> None:
        await self.streams.start()

    async def stop(self) -> None:
        """All topologies end after their rounds; records of open calls to the backend come again at the next start."""
        if self._deliverer is not None:
            await self._deliverer.stop()
        await self.streams.stop()


def _streams(shared: SharedParts, deliverer: Deliverer | None) -> Streams:
    settings = shared.settings
    temporary = None
    if settings.state_dir is None and settings.streams:
        temporary = tempfile.TemporaryDirectory(prefix="kafka-mesh-streams-")
    surroundings = Surroundings(
        application=settings.streams_application_id or settings.service_id,
        folder=Path(temporary.name) if temporary is not None else (settings.state_dir or Path()) / "streams",
        threads=settings.streams_threads,
        sidecar=settings.name,
        stop_seconds=settings.drain_timeout_ms / 1000,
        max_store_bytes=settings.streams_max_store_bytes,
        max_record_bytes=settings.max_record_bytes,
        keep_ready=settings.streams_standby,
        replication=settings.streams_replication_factor,
        properties=client_properties(settings) if settings.streams else {},
        options=partial(_options, settings),
        reader=shared.reader,
        serializer=shared.serializer,
        backend=None
        if deliverer is None
        else DeliveredBackend(deliverer, batch_records=settings.streams_batch_records),
        audit=shared.audit,
    )
    return Streams(references(settings.streams), surroundings, clean_up=settings.streams_clean_up, folder=temporary)


def _options(settings: SidecarSettings, plan: Plan) -> WorkerOptions:
    return WorkerOptions(
        limits=RoundLimits(
            settings.streams_round_records, settings.streams_round_bytes, settings.streams_linger_ms / 1000
        ),
        on_error=settings.streams_on_error,
        on_unreadable=settings.streams_on_unreadable,
        dead_letters=DeadLetters(plan.group, settings.written_extension),
        max_value_bytes=settings.max_record_bytes - RECORD_OVERHEAD,
        transaction_seconds=settings.streams_transaction_timeout_ms / 1000,
        consumer=_consumer_properties(settings),
        producer=partial(_producer_properties, settings),
    )


def _consumer_properties(settings: SidecarSettings) -> dict[str, Any]:
    return {
        **consumer_properties(settings),
        "auto.offset.reset": settings.streams_auto_offset_reset,
        "max.poll.interval.ms": max(settings.streams_max_poll_ms, settings.session_timeout_ms),
        "queued.max.messages.kbytes": max(settings.streams_round_bytes // 1024, 1),
        "fetch.max.bytes": max(settings.streams_round_bytes, settings.max_record_bytes),
        "max.partition.fetch.bytes": max(settings.streams_round_bytes, settings.max_record_bytes),
    }


def _producer_properties(settings: SidecarSettings, transactional_id: str) -> dict[str, Any]:
    milliseconds = settings.streams_transaction_timeout_ms
    return {
        **transaction_properties(settings, transactional_id),
        "transaction.timeout.ms": milliseconds,
        "message.timeout.ms": milliseconds,
        # a round is written at once, so all its records need room
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1024 * 1024,
    }
