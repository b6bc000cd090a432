"""Connections to the brokers of one cluster for requests that confluent-kafka does not have: made for one question.

confluent-kafka can't ask about transactions of others, so these connections are aiokafka's.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest

from mesh.cluster_access import ClusterAccess, ClusterAccessError, cluster_access, reason_of
from mesh.cluster_properties import allowed
from mesh.connection_security import ConnectionSecurity, UnservedSecurityError, connection_properties
from mesh.routing import UpstreamCluster
from mesh.settings import host_port
from services.control.upstream.connections import REQUEST_TIMEOUT, UnreachableError

CLIENT_ID: Final = "kafka-mesh-control"
GROUP: Final = 0
TRANSACTION: Final = 1
"""FindCoordinator's numbers for the coordinators of a group and of a transactional id."""
ON_THE_WAY: Final = frozenset({14, 15, 16, 51})
"""Error codes after which the same request is sent again: the coordinator loads, moves, or ends a transaction."""
UNKNOWN_TOPIC: Final = 3
PAUSE_S: Final = 0.1
"""Seconds before a request is sent again."""


class CoordinatorRefusedError(RuntimeError):
    """A coordinator answers with an error that another try does not change."""

    def __init__(self, cluster: str, code: int) -> None:
        self.code = code
        super().__init__(f"the coordinator on {cluster!r} answers with error {code}")


class BrokerConnections:
    """An asynchronous context. Raises UnreachableError when the cluster can't be asked."""

    def __init__(self, cluster: UpstreamCluster, bound_s: float) -> None:
        """`bound_s`: seconds for all that happens within the context."""
        self._cluster = cluster
        self._bound = asyncio.timeout(bound_s)
        self._bound_s = bound_s
        self._access: ClusterAccess | None = None
        self._connections: dict[tuple[str, int], Any] = {}
        self._connecting = asyncio.Lock()
        self._first: Any = None
        self.brokers: dict[int, tuple[str, int]] = {}
        """Broker id -> host and port."""

    async def __aenter__(self) -> BrokerConnections:
        await self._bound.__aenter__()
        try:
            properties = connection_properties(
                allowed(self._cluster.producer_config), allowed(self._cluster.consumer_config)
            )
            security = ConnectionSecurity.of(properties)
            self._access = await cluster_access(self._cluster.bootstrap_servers, security)
            self._first = await self._bootstrap()
            await self.partitions()
        except BaseException as error:
            await self._leave(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(kind, error, trace)

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections; turns errors of the network into UnreachableError."""
        for connection in self._connections.values():
            connection.close()
        try:
            await self._bound.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._away(f"no answer within {self._bound_s:g} s") from error
        if isinstance(error, ClusterAccessError | UnservedSecurityError | KafkaError | OSError | TimeoutError):
            raise self._away(reason_of(error)) from error

    def _away(self, reason: str) -> UnreachableError:
        addresses = ", ".join(self._cluster.bootstrap_servers)
        return UnreachableError(f"cluster {self._cluster.name!r} at {addresses} does not answer: {reason}")

    async def _bootstrap(self) -> Any:
        failed: list[str] = []
        for address in self._cluster.bootstrap_servers:
            try:
                return await self._connection(*host_port(address))
            except (KafkaError, OSError, TimeoutError) as error:
                failed.append(f"{address}: {reason_of(error)}")
        raise KafkaConnectionError("; ".join(failed))

    async def _connection(self, host: str, port: int) -> Any:
        async with self._connecting:
            known = self._connections.get((host, port))
            if known is None:
                assert self._access is not None
                known = await create_conn(
                    host,
                    port,
                    client_id=CLIENT_ID,
                    request_timeout_ms=int(1000 * REQUEST_TIMEOUT),
                    **self._access.for_aiokafka(),
                )
                self._connections[host, port] = known
            return known

    async def partitions(self, *topics: str) -> dict[str, dict[int, int]]:
        """Topic -> partition -> leader, for those of the topics that exist. Creates none.

        A topic that the cluster does not describe for another reason is an error: it may exist.
        """
        told = await self._first.send(MetadataRequest(list(topics), allow_auto_topic_creation=False))
        self.brokers = {node: (host, port) for node, host, port, _ in told.brokers}
        found: dict[str, dict[int, int]] = {}
        for error, name, _, partitions in told.topics:
            if error == UNKNOWN_TOPIC:
                continue
            if error:
                raise KafkaError(f"topic {name} is not described: error {error}")
            found[name] = {partition: leader for _, partition, leader, *_ in partitions}
        return found

    async def ask(self, broker_id: int, request: Any) -> Any:
        """The answer of this broker."""
        if broker_id not in self.brokers:
            raise KafkaConnectionError(f"broker {broker_id} is not among its brokers now")
        connection = await self._connection(*self.brokers[broker_id])
        return await connection.send(request)

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._cluster.name

    async def coordinator(self, name: str, kind: int = TRANSACTION) -> int:
        """The broker that coordinates the id or group. Waits while the cluster does not know the coordinator yet."""
        while True:
            told = await self._first.send(FindCoordinatorRequest(name, kind))
            if not told.error_code:
                self.brokers.setdefault(told.coordinator_id, (told.host, told.port))
                return int(told.coordinator_id)
            if told.error_code not in ON_THE_WAY:
                raise CoordinatorRefusedError(self._cluster.name, told.error_code)
            await asyncio.sleep(PAUSE_S)

    async def ask_coordinator(self, name: str, request: Any, kind: int = TRANSACTION) -> Any:
        """The coordinator's answer. Asks again while the coordinator loads, moves, or ends a transaction of the id."""
        while True:
            told = await self.ask(await self.coordinator(name, kind), request)
            if told.error_code not in ON_THE_WAY:
                return told
            await asyncio.sleep(PAUSE_S)
