"""The gateway as a whole: starts in the order in which its parts need each other, stops the other way round."""

import asyncio
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

from mesh.lifecycle import Lifecycle
from mesh.listeners.codec import policy_from_proto
from mesh.routing import RoutingTable
from mesh.tracing import tracer_for
from mesh.traffic.counting import Counts
from mesh.traffic.emission import Emission
from services.gateway import metrics
from services.gateway.downstream import last_table
from services.gateway.downstream.awaited import Awaited
from services.gateway.downstream.changed_listeners import ChangedListeners
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.client_figures import ClientFigures
from services.gateway.downstream.control_changes import ControlChanges
from services.gateway.downstream.conversions import Conversions
from services.gateway.downstream.discovery import Discovery
from services.gateway.downstream.entrance import Entrance, Reception, link_entrance
from services.gateway.downstream.handed import Handed
from services.gateway.downstream.idle_connections import IdleConnections
from services.gateway.downstream.listening import AskedNode, Ports
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.open_listeners import OpenListeners
from services.gateway.downstream.request_tracing import RequestTracing
from services.gateway.downstream.revocations import Revocations
from services.gateway.downstream.routers import Routers
from services.gateway.downstream.siblings import Introduction, Siblings
from services.gateway.downstream.sweeping import Sweeping
from services.gateway.downstream.tables import Tables
from services.gateway.downstream.telemetry_exposition import TelemetryCollector
from services.gateway.downstream.user_discovery import UserDiscovery
from services.gateway.requests.memory import Memory
from services.gateway.requests.topic_patterns import TopicPatterns
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.requests.traffic.receipts import ClientReceipts
from services.gateway.settings import GatewaySettings
from services.gateway.upstream import security
from services.gateway.upstream.clusters import Clusters

if TYPE_CHECKING:
    from services.gateway.downstream.audit_trail import AuditTrail
    from services.gateway.downstream.telemetry_forwarding import TelemetryForwarding
    from services.gateway.keys.ring import KeyRing

log = structlog.get_logger(__name__)

FIRST_VISIT_S = 5.0
"""How long readiness waits until each cluster was tried once."""

FIRST_WORD_S = 3.0
"""How long a gateway with a table on disk waits for a router's table: topics may have moved since the gateway stopped.
A gateway that has no router serves under the table on disk.
"""


class Gateway:
    """`start`, then `stop`."""

    def __init__(
        self,
        settings: GatewaySettings,
        lifecycle: Lifecycle,
        door: socket.socket | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        """If another process listens, clients come from `door`, and `siblings` are the other workers."""
        self._settings = settings
        self._lifecycle = lifecycle
        self._door = door
        self._clusters = Clusters(settings.upstream_limits)
        self._conversions = Conversions(settings.conversion_workers)
        telemetry = settings.telemetry
        self._traffic = Emission(settings, settings.name, "gateway", metrics.traffic)
        counts = self._traffic.counts
        self._audit = _audit_trail(settings, self._conversions)
        self.mesh = Mesh(
            self._clusters,
            settings.mesh_id,
            settings.client_limits,
            self._conversions,
            Tables(settings.authorization),
            memory=Memory(
                telemetry=telemetry,
                traffic=None if counts is None else ClientTraffic(counts, time.monotonic, _receipts(settings, counts)),
                audit=self._audit.clients if self._audit is not None and settings.audit_topics else None,
            ),
        )
        self.mesh.siblings = siblings
        self._keys = _key_ring(settings)
        if self._keys is not None:
            self.mesh.memory.data_keys = self._keys
        self._tracer = tracer_for(settings.tracing, "gateway", settings.name, metrics.tracing.count)
        if self._tracer is not None:
            self.mesh.tracing = RequestTracing(self._tracer)
        if self._audit is not None:
            self.mesh.refused.audit = self._audit.refused
        self.mesh.figures = ClientFigures(lambda: [each.session for each in list(self.connections)])
        self._exposed: tuple[Collector, ...] = (TelemetryCollector(telemetry), self.mesh.figures)
        self._forwarding = _forwarding(settings)
        if self._forwarding is not None:
            telemetry.on_push = self._forwarding.take
        self.connections: set[ClientConnection] = set()
        self.handed: Handed | None = None
        """The reception of clients, if another process listens."""
        self._tasks: list[asyncio.Task[None]] = []
        self._discovery: Discovery | None = None
        self._reception: Reception | None = None
        self._users: UserDiscovery | None = None
        self.port = 0
        """The port of the first listener."""

    async def start(self) -> None:
        """Ready when there is a table, from disk or from a router, and every cluster was tried once.

        A table on disk counts only if control moves no topic without this gateway.
        """
        settings = self._settings
        table = last_table.load(settings.state_dir)
        if table is not None:
            security.check(table)
            self.mesh.run_table(table)
        revocations = self.mesh.revocations = Revocations(self.connections)
        reception = self._reception = Reception(settings.proofs, revocations.users)
        if settings.router_addresses:
            self.mesh.changes = ControlChanges(Routers(settings.router_addresses, settings.rpc_tls))
        if settings.users_from_control:
            routers = Routers(settings.router_addresses, settings.rpc_tls)
            self._users = UserDiscovery(routers, settings.state_dir, reception.take)
            self.mesh.memory.own_users = lambda: reception.known
        self.handed = None if self._door is None else Handed(self._door)
        changed = ChangedListeners(self.connections, settings.listener_drain_s, settings.drain_timeout_s)
        open_listeners = self.mesh.listeners = OpenListeners(
            settings, self.handed or Ports(), reception.entrance, changed, revocations.certificates
        )
        open_listeners.bind(policy_from_proto(self.mesh.table.policies.listener_policy))
        self.port = open_listeners.port
        awaited = Awaited(settings.state_dir, settings.name, is_worker=self._door is not None)
        discovery = self._discovery = Discovery(
            settings.name,
            str(settings.listeners[0]),
            settings.router_addresses,
            settings.state_dir,
            self.mesh,
            self.connections,
            awaited,
            settings.rpc_tls,
        )
        loop = asyncio.get_running_loop()
        if settings.router_addresses:
            held = last_table.load_held(settings.state_dir)
            if table is not None and held is not None:
                discovery.resume_hold(held)
            may_serve = table is not None and bool(awaited)
            self._tasks.append(loop.create_task(discovery.run(), name="discovery"))
            if not may_serve:
                await self._first_table(discovery, table)
                if self._lifecycle.stopping.is_set():
                    return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FIRST_WORD_S):
                        await _either(discovery.looked, self._lifecycle.stopping)
        elif table is None:
            log.warning("no routing table and no router: every topic is unknown", state_dir=str(settings.state_dir))
            self.mesh.run_table(self.mesh.table)
        if self._users is not None:
            self._tasks.append(loop.create_task(self._users.run(), name="users of control"))
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WORD_S):
                    await _either(self._users.looked, self._lifecycle.stopping)
            if not self._users.has_users:
                log.warning("no users of control have come yet: nobody can log in with a password until they come")
        await self._clusters.attempted(FIRST_VISIT_S)
        self._tasks.append(loop.create_task(reception.follow(), name="users"))
        sweeping = Sweeping(self.mesh, settings.listeners[0].advertised)
        self._tasks.append(loop.create_task(sweeping.run(), name="sweeping"))
        idle = IdleConnections(self.connections, settings.connections_max_idle_s)
        self._tasks.append(loop.create_task(idle.run(), name="idle connections"))

        def came(entrance: Entrance, asked_node: AskedNode) -> ClientConnection:
            return ClientConnection(self.mesh, self.connections, entrance, asked_node)

        await open_listeners.serve(came)
        self._tasks.append(loop.create_task(open_listeners.run(), name="listeners"))
        if self.mesh.siblings is not None:
            self.mesh.siblings.serve(self._met)
        for exposed in self._exposed:
            REGISTRY.register(exposed)
        self._traffic.start()
        if self._forwarding is not None:
            self._forwarding.start()
        if self._audit is not None:
            self._audit.start()
        self._lifecycle.ready()

    async def _first_table(self, discovery: Discovery, table: RoutingTable | None) -> None:
        """Returns when a router has sent a table, or at the stop."""
        if table is None:
            self._lifecycle.not_ready("waits for the first routing table")
        else:
            metrics.table_outdated.set(1)
            self._lifecycle.not_ready(
                f"waits for a router: topics may have moved since revision {table.revision}, the table on disk, "
                "because this gateway had said goodbye, or was never connected"
            )
        await _either(discovery.first_table, self._lifecycle.stopping)
        metrics.table_outdated.set(0)

    def _met(self, introduction: Introduction) -> ClientConnection:
        """The connection for a link of another worker, which has the client's own connection."""
        entrance = link_entrance(self._settings.listeners[0])
        return ClientConnection(self.mesh, self.connections, entrance, introduction=introduction)

    async def stop(self) -> None:
        """Take no new clients, answer the requests that have begun, within the bound, then close everything.

        Without an answer a cluster may still store records. Then there is no goodbye, so no topic moves meanwhile.
        """
        for exposed in self._exposed:
            with suppress(KeyError):  # the start may have failed before
                REGISTRY.unregister(exposed)
        if self.mesh.listeners is not None:
            self.mesh.listeners.close()
        if self.mesh.siblings is not None:
            self.mesh.siblings.close()
        for connection in list(self.connections):
            connection.drain("the gateway stops")
        try:
            async with asyncio.timeout(self._settings.drain_timeout_s):
                while self.connections or self.mesh.producing:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            unanswered = len(self.mesh.producing)
            log.warning("clients were cut off at the stop", connections=len(self.connections), produces=unanswered)
        for connection in list(self.connections):
            connection.abort("the gateway stops")
        if self._discovery is not None:
            self._discovery.follow_no_more()
        may_store_more = bool(self.mesh.producing)
        if not may_store_more:
            await self.mesh.settled(lambda _: True)  # seconds, and only if a batch got no answer a moment ago
        if self._audit is not None:
            await self._audit.stop()
        await self._conversions.stop()
        if self._keys is not None:
            await self._keys.close()
        if self.mesh.changes is not None:
            await self.mesh.changes.stop()
        await self._clusters.stop()
        if may_store_more:
            log.warning("no goodbye, records have no answer yet: changes that move topics wait for this gateway")
        elif self._discovery is not None:
            await self._discovery.say_goodbye()
        await self._traffic.stop()
        if self.mesh.tracing is not None:
            self.mesh.tracing.flush()
        for part in (self._tracer, self._forwarding):
            if part is not None:
                await asyncio.to_thread(part.stop)
        if self._reception is not None:
            await self._reception.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._users is not None:
            await self._users.stop()


def _receipts(settings: GatewaySettings, counts: Counts) -> ClientReceipts | None:
    """The receipts of the topics that the settings name; None if they name no topic."""
    if not settings.receipt_topics:
        return None
    exact = TopicPatterns(settings.exact_receipt_topics)
    metrics.receipts.set_function(lambda: len(counts.receipts))
    return ClientReceipts(counts.receipts, TopicPatterns(settings.receipt_topics), exact)


def _audit_trail(settings: GatewaySettings, conversions: Conversions) -> "AuditTrail | None":
    """The audit trail of refusals, and of the topics that the settings name; None without a home cluster."""
    if not settings.home_bootstrap_servers:
        return None
    from mesh.home_cluster import HomeCluster  # it imports Kafka's client, which only auditing needs
    from services.gateway.downstream.audit_trail import AuditTrail

    home = HomeCluster(settings.home_bootstrap_servers, settings.home_properties)
    return AuditTrail(settings.audit_topics, home, settings.audit_records_topic, settings.name, conversions)


def _key_ring(settings: GatewaySettings) -> "KeyRing | None":
    """The keys of protected values; None without a service of keys."""
    if not settings.key_service and not settings.schema_registry_url:
        return None
    from services.gateway.keys.ring import KeyRing
    from services.gateway.keys.services import key_service

    token = settings.key_service_token.get_secret_value()
    service = key_service(settings.key_service, token, settings.key_service_ca) if settings.key_service else None
    return KeyRing(service, settings.data_keys_kept_s, settings.schema_registry)


def _forwarding(settings: GatewaySettings) -> "TelemetryForwarding | None":
    """The way of clients' own metrics to the OTLP receiver; None if they go no further."""
    if not settings.telemetry_forwarded:
        return None
    from services.gateway.downstream.telemetry_forwarding import TelemetryForwarding  # it imports the client of OTLP

    return TelemetryForwarding(settings.tracing)


async def _either(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
