"""Assembles the endpoints for operators, and the parts that report the sidecar's metrics by themselves."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from starlette.middleware import Middleware
from starlette.routing import Route

from services.sidecar.admin.assaults import Assaults
from services.sidecar.admin.backend_loggers import BackendLoggers
from services.sidecar.admin.held_memory import HeldMemory
from services.sidecar.admin.log_memory import LogMemory
from services.sidecar.admin.modules import Modules, Reload
from services.sidecar.admin.topics import Topics
from services.sidecar.api.admin import AdminEndpoints
from services.sidecar.api.admin_kafka import AdminKafkaEndpoints, Reports
from services.sidecar.api.chaos import Chaos
from services.sidecar.consuming.instances import Instances
from services.sidecar.control.orders import Orders
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry.influx import InfluxPush
from services.sidecar.telemetry.topic_metrics import group_lag
from services.sidecar.wiring.kafka_properties import client_properties


class AdminParts:
    """The administration of one sidecar."""

    def __init__(
        self,
        settings: SidecarSettings,
        instances: Instances,
        orders: Orders,
        modules: Mapping[str, Reload],
        information: Callable[[], Mapping[str, Any]],
        shut_down: Callable[[], None],
        subscriptions: Callable[[], Reports],
    ) -> None:
        """`modules`: the parts that can be reloaded, by name."""
        self._log_memory = LogMemory()
        if settings.log_content_enabled:
            logging.getLogger().addHandler(self._log_memory)
        self._assaults = Assaults(enabled=settings.chaos_monkey_enabled)
        self._held_memory = HeldMemory()
        self._assaults.on_change = self._held_memory.changed
        self._backend: BackendLoggers | None = None
        if settings.logging_downstream_enabled:
            self._backend = BackendLoggers(
                settings.downstream_host, settings.downstream_framework, settings.downstream_timeout_ms / 1000
            )
        self._influx: InfluxPush | None = None
        if settings.influx_url:
            self._influx = InfluxPush(
                settings.influx_url,
                interval_seconds=settings.influx_interval_ms / 1000,
                token=settings.influx_token.get_secret_value(),
                tags={"api": settings.service_id, "sidecar": settings.name, "host": socket.gethostname()},
            )
        self._endpoints = AdminEndpoints(
            settings,
            log_memory=self._log_memory,
            modules=Modules(modules),
            assaults=self._assaults,
            backend=self._backend,
            information=information,
            shut_down=shut_down,
        )
        self._topics = Topics(client_properties(settings))
        self._kafka = AdminKafkaEndpoints(settings, orders, self._topics, subscriptions)
        self._lags = partial(_lags, instances)

    def routes(self) -> list[Route]:
        return [*self._endpoints.routes(), *self._kafka.routes()]

    def middleware(self) -> Middleware:
        """Lets assaults strike."""
        return Middleware(Chaos, assaults=self._assaults, memory=self._held_memory, chance=random.Random())

    def start(self) -> list[asyncio.Task[None]]:
        """Background tasks; they end only when cancelled."""
        group_lag.add(self._lags)
        return [asyncio.create_task(self._influx.run(), name="influx")] if self._influx is not None else []

    async def close(self) -> None:
        group_lag.remove(self._lags)
        logging.getLogger().removeHandler(self._log_memory)
        await self._held_memory.end()
        self._topics.close()
        if self._backend is not None:
            await self._backend.close()
        if self._influx is not None:
            await self._influx.close()


def _lags(instances: Instances) -> Iterable[tuple[str, str, int]]:
    for instance in instances:
        for one in instance.last_status.partitions:
            yield instance.id.group, one.partition.topic, one.lag
