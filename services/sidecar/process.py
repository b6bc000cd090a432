"""Puts a sidecar together, serves, and puts it away again in the order that loses nothing.

The end: no new connections; reads that wait answer now; open requests are finished; records on the way are
acknowledged; consumers leave their groups; control hears of it. Each step is bounded.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import structlog
import uvicorn

from mesh.lifecycle import Lifecycle
from mesh.rpc import events
from mesh.settings import host_port
from mesh.telemetry import serve_management
from services.sidecar.api.app import build_app
from services.sidecar.api.consumers import ConsumerEndpoints
from services.sidecar.api.health import HealthEndpoints
from services.sidecar.api.producers import ProducerEndpoints
from services.sidecar.consuming.group_consumer import ReadLimits
from services.sidecar.consuming.instance import InstanceLimits
from services.sidecar.consuming.instances import Instances
from services.sidecar.control_link import ControlLink, resource_name
from services.sidecar.health import Health
from services.sidecar.producing.producer import ProducerLimits, RecordProducer
from services.sidecar.producing.records import Serializer
from services.sidecar.settings import SidecarSettings

READINESS_SECONDS = 5.0
"""How often the readiness of the process is looked at again."""
KEEP_ALIVE_SECONDS = 75
"""Idle connections of the backend stay open; most clients give theirs up sooner."""
CONTROL_STOP_SECONDS = 2.0
LAST_ANSWERS_SECONDS = 3
"""For requests to be answered once their records were given up."""

log = structlog.get_logger(__name__)


def client_properties(settings: SidecarSettings) -> dict[str, Any]:
    """librdkafka properties that all clients of this sidecar share."""
    return {
        "client.id": settings.name,
        "logger": logging.getLogger("librdkafka"),
        **{name: value.get_secret_value() for name, value in settings.kafka_properties.items()},
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
    }


def producer_properties(settings: SidecarSettings) -> dict[str, Any]:
    return {
        "linger.ms": settings.linger_ms,
        **client_properties(settings),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # Java clients put the same key on the same partition
        "message.max.bytes": settings.max_record_bytes,
        "message.timeout.ms": settings.delivery_timeout_ms,
        "topic.metadata.propagation.max.ms": settings.unknown_topic_timeout_ms,
        # twice what is admitted: the bound is Admission's, and this one must not bite first
        "queue.buffering.max.messages": 2 * settings.max_queued_records,
        "queue.buffering.max.kbytes": 2 * max(settings.max_queued_bytes, settings.max_request_bytes) // 1024 + 1,
    }


def consumer_properties(settings: SidecarSettings) -> dict[str, Any]:
    return {
        **client_properties(settings),
        "queued.max.messages.kbytes": max(settings.prefetch_bytes // 1024, 1),
        "allow.auto.create.topics": False,
    }


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: `mesh.lifecycle` has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Sidecar:
    """One sidecar; use as a context within a running loop. `port` is where it listens."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self._socket = _bound_socket(settings.listen)
        self.port: int = self._socket.getsockname()[1]
        self._producer = RecordProducer(
            producer_properties(settings),
            ProducerLimits(settings.max_queued_records, settings.max_queued_bytes, settings.queue_timeout_ms / 1000),
        )
        self._instances = Instances(
            settings.name,
            consumer_properties(settings),
            InstanceLimits(
                max_instances=settings.max_instances,
                idle_seconds=settings.instance_timeout_ms / 1000,
                commit_seconds=settings.commit_timeout_ms / 1000,
                read=ReadLimits(settings.read_linger_ms / 1000, settings.max_poll_records),
            ),
        )
        self.health = Health(client_properties(settings), self._producer, timeout=settings.health_timeout_ms / 1000)
        self._control: ControlLink | None = None
        if settings.control_address:
            self._control = ControlLink(
                settings.control_address, sidecar=settings.name, listen=settings.listen, current=self._instance_messages
            )
            self._instances.on_change = self._control.changed
            self._instances.on_end = self._control.ended
        self._server = _Server(self._server_config())
        self._background: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Serves; returns when connections are accepted."""
        self._background = [asyncio.create_task(self._instances.reap(), name="reap")]
        if self._control is not None:
            self._background.append(asyncio.create_task(self._control.run(), name="control"))
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http")

    async def stop(self) -> None:
        """Puts everything away, within bounds."""
        drain_until = time.monotonic() + self._settings.drain_timeout_ms / 1000
        self._instances.interrupt()
        self._server.should_exit = True
        await asyncio.wait([self._serving], timeout=drain_until - time.monotonic())
        await self._producer.stop(max(drain_until - time.monotonic(), 0))  # requests that still wait are answered 503
        await self._serving
        await self._instances.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._control is not None:
            await self._control.close(CONTROL_STOP_SECONDS)

    def background_failures(self) -> list[asyncio.Task[None]]:
        """Tasks that have ended though they never should."""
        return [task for task in (*self._background, self._serving) if task.done()]

    def _server_config(self) -> uvicorn.Config:
        settings = self._settings
        producers = ProducerEndpoints(
            self._producer,
            Serializer(settings.key_format, settings.value_format, settings.caller_id),
            max_request_bytes=settings.max_request_bytes,
            forward_authorization=settings.forward_authorization,
        )
        consumers = ConsumerEndpoints(self._instances, settings)
        health = HealthEndpoints(self.health, as_json=settings.health_json)
        return uvicorn.Config(
            build_app([*producers.routes(), *consumers.routes(), *health.routes()]),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=settings.max_connections,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=settings.drain_timeout_ms // 1000 + LAST_ANSWERS_SECONDS,
        )

    def _instance_messages(self) -> list[events.ConsumerInstance]:
        return [
            events.ConsumerInstance(
                name=resource_name(instance.id),
                group=instance.id.group,
                instance_id=instance.id.instance,
                sidecar=self._settings.name,
                topics=instance.topics,
                key_format=instance.options.key_format.label,
                value_format=instance.options.value_format.label,
            )
            for instance in self._instances
        ]


@contextlib.asynccontextmanager
async def running(settings: SidecarSettings) -> AsyncIterator[Sidecar]:
    """A sidecar that serves within the context."""
    sidecar = Sidecar(settings)
    await sidecar.start()
    try:
        yield sidecar
    finally:
        await sidecar.stop()


async def serve(settings: SidecarSettings, lifecycle: Lifecycle) -> None:
    """The service's life, from start to drained."""
    management = serve_management(settings.metrics_listen, lifecycle)
    try:
        async with running(settings) as sidecar:
            log.info("listening", address=settings.listen, kafka=",".join(settings.bootstrap_servers))
            await _follow_readiness(sidecar, lifecycle)
    finally:
        management.stop()


async def _follow_readiness(sidecar: Sidecar, lifecycle: Lifecycle) -> None:
    """Ready while Kafka answers, until it is told to stop."""
    while not lifecycle.stopping.is_set():
        fault = sidecar.health.producer_fault() or await sidecar.health.kafka_fault()
        if failed := sidecar.background_failures():
            failed[0].result()
            raise RuntimeError(f"task {failed[0].get_name()} ended by itself")
        if fault is None:
            lifecycle.ready()
        else:
            lifecycle.not_ready(fault)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READINESS_SECONDS if fault is None else 1.0):
                await lifecycle.stopping.wait()


def _bound_socket(listen: str) -> socket.socket:
    """OSError, naming the address, when it is taken."""
    host, port = host_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror}") from None
    bound.set_inheritable(True)
    return bound
