"""Whether this sidecar can do its work, check by check: acknowledgements are read, Kafka and the backend answer."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from mesh.cluster_nodes import ClusterNodes, cluster_nodes
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.telemetry.client_statistics import broker_fault

FRESH_SECONDS = 1.0
"""Probes that come closer together share one answer."""
Check = Callable[[], Awaitable[str | None]]
"""The problem, in a sentence; None if there is none."""


class BackendProbe:
    """Asks the backend beside this sidecar for its own health: once a second, however many ask."""

    def __init__(self, url: str, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._timeout = timeout
        self._client = httpx.AsyncClient(timeout=timeout, trust_env=False)  # beside us: no proxy leads there
        self._lock = asyncio.Lock()
        self._asked_at = -math.inf
        self._fault: str | None = None

    async def fault(self) -> str | None:
        """Why it is not well; None when it is."""
        async with self._lock:
            if self._clock() - self._asked_at >= FRESH_SECONDS:
                self._fault = await self._ask()
                self._asked_at = self._clock()
            return self._fault

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(self._timeout), self._client.stream("GET", self._url) as answer:
                status = answer.status_code
        except TimeoutError:
            return f"the backend does not answer within {self._timeout:g} s"
        except httpx.HTTPError as error:
            return f"the backend does not answer: {str(error) or type(error).__name__}"
        return None if status < httpx.codes.BAD_REQUEST else f"the backend's health answers {status}"


class Health:
    """Asks for the cluster's description with a small client of its own, as nothing else shows that Kafka is back."""

    def __init__(
        self,
        properties: dict[str, Any],
        producer: RecordProducer,
        *,
        timeout: float,
        backend: BackendProbe | None = None,
    ) -> None:
        self._properties = properties
        self._admin: AdminClient | None = None
        self._producer = producer
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._asked_at = -math.inf
        self._fault: str | None = None
        self._asking: asyncio.Future[ClusterNodes] | None = None
        self._checks: dict[str, Check] = {"kafka": self.kafka_fault}
        self._vital: dict[str, Callable[[], str | None]] = {
            "producer": self.producer_fault,
            "clients": broker_fault,
        }
        self._details: dict[str, Callable[[], object]] = {}
        self._backend = backend
        if backend is not None:
            self._checks["backend"] = backend.fault

    def add(self, name: str, check: Check, details: Callable[[], object] | None = None) -> None:
        """Adds a check to readiness; `details`: more about the part than well or not."""
        self._checks[name] = check
        if details is not None:
            self._details[name] = details

    def add_liveness(self, name: str, check: Callable[[], str | None]) -> None:
        """Adds a check for a problem that only a restart can cure."""
        self._vital[name] = check

    def details(self) -> dict[str, object]:
        """The details of the parts that have them, by the names of their checks."""
        return {name: tell() for name, tell in self._details.items()}

    async def close(self) -> None:
        if self._backend is not None:
            await self._backend.close()

    def liveness(self) -> dict[str, str | None]:
        """The problems that only a restart can cure, by check; None for a check without one."""
        return {name: check() for name, check in self._vital.items()}

    async def readiness(self) -> dict[str, str | None]:
        """All checks, each within its time-out."""
        found = await asyncio.gather(*(check() for check in self._checks.values()))
        return {**self.liveness(), **dict(zip(self._checks, found, strict=True))}

    def producer_fault(self) -> str | None:
        """The problem of the producer; None if it works."""
        return None if self._producer.is_alive else "nobody reads acknowledgements any more; restart this sidecar"

    async def kafka_fault(self) -> str | None:
        """Why Kafka cannot be used; None when it can. Answers within the time-out."""
        async with self._lock:
            if time.monotonic() - self._asked_at >= FRESH_SECONDS:
                self._fault = await self._ask()
                self._asked_at = time.monotonic()
            return self._fault

    async def _ask(self) -> str | None:
        if self._asking is None or self._asking.done():  # else the answer to the last probe is still to come
            self._admin = self._admin or AdminClient(self._properties)
            self._asking = asyncio.ensure_future(asyncio.to_thread(cluster_nodes, self._admin, self._timeout))
        late = f"Kafka does not answer within {self._timeout:g} s"
        done, _ = await asyncio.wait({self._asking}, timeout=self._timeout)
        if not done:
            return late
        try:
            cluster = self._asking.result()
        except KafkaException as error:
            self._admin = None  # the client may have lost all brokers for good: `mesh/lost_brokers.py`
            is_late = error.args[0].code() == KafkaError._TIMED_OUT
            return late if is_late else f"Kafka does not answer: {error.args[0].str()}"
        if not cluster.brokers or cluster.cluster_id is None or cluster.controller_id < 0:
            return "Kafka answers without nodes, cluster id or controller"
        return None
