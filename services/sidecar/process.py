"""Assembles a sidecar, serves, and shuts it down in an order that loses nothing.

The start: consumer instances come back first; only then are connections accepted.

The end: no new connections; reads that wait answer now; open requests are finished; records on the way are
acknowledged; consumers leave their groups, and their instances stay for the next start. Each step is bounded.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog
from starlette.routing import Route

from mesh.http_server import Server, bound_socket
from mesh.lifecycle import Lifecycle
from mesh.telemetry import serve_management
from mesh.tracing import tracer_for
from mesh.traffic.emission import Emission
from services.sidecar.admin.information import information
from services.sidecar.api.active_audit import ActiveAuditEndpoints
from services.sidecar.api.consumers import ConsumerEndpoints
from services.sidecar.api.document import DocumentEndpoints
from services.sidecar.api.health import HealthEndpoints
from services.sidecar.api.records import RecordEndpoints
from services.sidecar.auditing.active import ActiveAudit
from services.sidecar.auditing.settings import AuditTarget
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.producing.serializing import Serializer
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.traffic import SidecarTraffic
from services.sidecar.wiring.admin import AdminParts
from services.sidecar.wiring.auditing import audit_text, audit_trail, service_id
from services.sidecar.wiring.consuming import instances
from services.sidecar.wiring.delivering import target
from services.sidecar.wiring.health import backend_probe, health
from services.sidecar.wiring.http_servers import HttpServers
from services.sidecar.wiring.instance_recovery import InstanceRecovery
from services.sidecar.wiring.jobs import JobParts
from services.sidecar.wiring.ksqldb import KsqldbParts
from services.sidecar.wiring.producing import ProducingParts
from services.sidecar.wiring.reactive import ReactiveParts
from services.sidecar.wiring.rest_v2 import RestV2Parts
from services.sidecar.wiring.schemas import schema_formats
from services.sidecar.wiring.shared_parts import SharedParts
from services.sidecar.wiring.streams import StreamsParts

READINESS_SECONDS = 5.0
"""The interval between two checks of the process's readiness."""
MIN_AUDIT_SECONDS = 1.0
"""How long audit may write at the end, however long all else took."""

log = structlog.get_logger(__name__)


class Sidecar:
    """One sidecar; use as a context within a running loop. `port`: the port on which it listens."""

    def __init__(self, settings: SidecarSettings, shut_down: Callable[[], None]) -> None:
        """`shut_down` is called when an operator wants this process to end."""
        self._settings = settings
        self._socket = bound_socket(settings.listen)
        self.port: int = self._socket.getsockname()[1]
        self._admin_socket = bound_socket(settings.admin_listen) if settings.admin_listen else None
        self.admin_port: int | None = self._admin_socket.getsockname()[1] if self._admin_socket else None
        self._tracer = tracer_for(settings.tracing, "sidecar", settings.name, metrics.tracing.count)
        self._http_servers = HttpServers(settings, self._tracer)
        self._rest_v2 = RestV2Parts(settings)
        self.rest_v2_port = self._rest_v2.port
        schemas = schema_formats(settings)
        reader = RecordReader(schemas)
        self._serializer = Serializer(
            settings.key_format,
            settings.value_format,
            schemas,
            settings.key_subject_strategy,
            settings.value_subject_strategy,
        )
        self._audit = audit_trail(settings)
        self._emission = Emission(settings, settings.name, "sidecar", metrics.traffic)
        self._traffic = SidecarTraffic(self._emission.counts, service_id(settings))
        self._producing = ProducingParts(settings, self._serializer, self._audit, self._traffic)
        self._probe = backend_probe(settings)
        self.health = health(settings, self._producing.producer, self._probe)
        self._recovery = InstanceRecovery(
            settings,
            lambda file: instances(settings, file, reader),
            self.health.readiness,
            self._information,
        )
        self._instances = self._recovery.instances
        self._ksqldb = KsqldbParts(settings)
        most = settings.reactive_max_concurrency
        backend = target(settings, settings.instance_formats[1], most, tracer=self._tracer)
        shared = SharedParts(
            settings, self._producing.producer, self._serializer, reader, self._audit, self._traffic, backend
        )
        self.streams = StreamsParts(shared)
        self.reactive = ReactiveParts(shared, self._recovery)
        self._jobs = JobParts(shared, self._recovery, self.reactive.subscriptions)
        self._look_after_parts()
        modules = self._http_servers.modules() | ({"schemas": schemas.reload} if schemas is not None else {})
        if self.reactive.subscriptions.are_declared:
            modules["subscriptions"] = self.reactive.subscriptions.reload
        self._admin = AdminParts(
            settings,
            self._instances,
            self._recovery.orders,
            modules,
            self._information,
            shut_down,
            self.reactive.subscriptions.reports,
        )
        self._servers = self._made_servers()
        self._serving: list[asyncio.Task[None]] = []
        self._background: list[asyncio.Task[None]] = []

    def _look_after_parts(self) -> None:
        """Health rests on the parts that this sidecar has."""
        settings = self._settings
        self.health.add("instances", self._recovery.fault)
        if settings.audit_target is not AuditTarget.OFF:
            self.health.add("audit", self._audit.fault)
        if settings.reads_by_itself:
            self.health.add("reactive", self.reactive.fault)
        if settings.reads_by_itself or settings.takes_subscriptions:
            self.health.add_liveness("reactive", self.reactive.liveness_fault)
        if settings.streams:
            self.health.add("streams", self.streams.fault, self.streams.states)
        for name, (check, details) in self._ksqldb.checks().items():
            self.health.add(name, check, details)

    async def start(self) -> None:
        """Serves; returns when connections are accepted. Instances that were here before are here again by then."""
        self._audit.start()
        self._emission.start()
        await self._recovery.restore()
        await self.streams.start()
        self._background = [
            *self._recovery.tasks(),
            *self._http_servers.tasks(),
            *self._ksqldb.tasks(),
            *self._admin.start(),
        ]
        self.reactive.subscriptions.settle()  # with those of control from the disk: jobs go by their paths
        await self._jobs.restore()
        for _, bound in self._servers:
            bound.listen()  # from now on no connection is refused; the servers themselves begin in a moment
        self._serving = [
            asyncio.create_task(server.serve(sockets=[bound]), name="http") for server, bound in self._servers
        ]
        self._background += await self.reactive.start([server for server, _ in self._servers], self._probe)
        self._background += self._jobs.tasks()

    async def stop(self) -> None:
        """Puts everything away, within bounds."""
        drain_until = time.monotonic() + self._settings.drain_timeout_ms / 1000
        self._instances.interrupt()
        self._producing.interrupt()
        for server, _ in self._servers:
            server.should_exit = True
        await asyncio.gather(
            self.reactive.stop(self._settings.drain_timeout_ms / 1000), self.streams.stop(), self._jobs.stop()
        )
        await asyncio.wait(self._serving, timeout=max(drain_until - time.monotonic(), 0))
        await self._producing.stop(max(drain_until - time.monotonic(), 0))  # requests that still wait are answered 503
        await asyncio.gather(*self._serving)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._recovery.close()
        await self._admin.close()
        await self._ksqldb.close()
        await self.reactive.subscriptions.close()
        await asyncio.gather(
            self._audit.stop(max(drain_until - time.monotonic(), MIN_AUDIT_SECONDS)), self._emission.stop()
        )
        await self.health.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.stop)
        await self._http_servers.close()
        self._rest_v2.close()
        self._serializer.close()

    def background_failures(self) -> list[asyncio.Task[None]]:
        """Tasks that have ended though they never should; not those that gave way to a younger process."""
        return [task for task in (*self._background, *self._serving) if task.done() and not task.cancelled()]

    def _information(self) -> dict[str, Any]:
        return information(self._settings, fingerprint=self._http_servers.fingerprint)

    def _made_servers(self) -> list[tuple[Server, socket.socket]]:
        """The backend's, and the operators' if they have one of their own."""
        middleware = [self._admin.middleware()]
        probes = HealthEndpoints(self.health, as_json=self._settings.health_json)
        everywhere = [*probes.routes(), *DocumentEndpoints().routes()]
        operators = [
            *self._admin.routes(),
            *self.streams.admin_routes(),
            *self._jobs.admin_routes(),
            *probes.admin_routes(),
        ]
        audit = ActiveAudit(self._audit)
        consumers = ConsumerEndpoints(self._instances, self._settings, audit)
        records = RecordEndpoints(self._instances, self._settings, audit, self._traffic)
        ours = [*self._routes(audit, consumers, records), *everywhere]
        if self._admin_socket is None:
            servers = [(self._http_servers.server([*ours, *operators], middleware), self._socket)]
        else:
            servers = [
                (self._http_servers.server(ours, middleware), self._socket),
                (self._http_servers.server([*everywhere, *operators]), self._admin_socket),
            ]
        producer = self._producing.producer
        return servers + self._rest_v2.servers(self._http_servers, consumers, records, producer, self._serializer)

    def _routes(self, audit: ActiveAudit, consumers: ConsumerEndpoints, records: RecordEndpoints) -> list[Route]:
        settings = self._settings
        results = ActiveAuditEndpoints(
            audit,
            audit_text(settings),
            max_request_bytes=settings.max_request_bytes,
            room_seconds=settings.queue_timeout_ms / 1000,
        )
        return [
            *self._producing.routes(),
            *consumers.routes(),
            *records.routes(),
            *results.routes(),
            *self.streams.routes(),
            *self._jobs.routes(self._instances),
            *self._ksqldb.routes(),
        ]


@contextlib.asynccontextmanager
async def running(settings: SidecarSettings, shut_down: Callable[[], None] = lambda: None) -> AsyncIterator[Sidecar]:
    """A sidecar that serves within the context."""
    sidecar = Sidecar(settings, shut_down)
    await sidecar.start()
    try:
        yield sidecar
    finally:
        await sidecar.stop()


async def serve(settings: SidecarSettings, lifecycle: Lifecycle) -> None:
    """The service's life, from start to drained."""
    management = serve_management(settings.metrics_listen, lifecycle)
    try:
        async with running(settings, lifecycle.stop) as sidecar:
            log.info("listening", address=settings.listen, kafka=",".join(settings.bootstrap_servers))
            await _follow_readiness(sidecar, lifecycle)
    finally:
        management.stop()


async def _follow_readiness(sidecar: Sidecar, lifecycle: Lifecycle) -> None:
    """Keeps the process ready while Kafka answers, until the process is stopped."""
    while not lifecycle.stopping.is_set():
        fault = next(filter(None, (await sidecar.health.readiness()).values()), None)
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
