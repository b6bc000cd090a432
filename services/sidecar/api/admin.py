"""`/adm/...`: the calls of an operator to one sidecar. Paths, members and codes are those of the light-4j platform."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.admin import log_levels
from services.sidecar.admin.assaults import Assaults
from services.sidecar.admin.backend_loggers import BackendLoggers, LoggerLevel
from services.sidecar.admin.log_memory import LogMemory, LogQuery
from services.sidecar.admin.modules import Modules
from services.sidecar.api.contract import CONTRACT, operation_of, parameters
from services.sidecar.api.requests import body_of, checked_body, parsed
from services.sidecar.api.status import json_response
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.settings import SidecarSettings

PASS_THROUGH = "X-Adm-PassThrough"
DEFAULT_LOG_LINES = 100
"""The number of lines of each logger in one answer."""


class AdminEndpoints:
    """Server information, loggers and their lines, modules, faults on purpose, and the end."""

    def __init__(
        self,
        settings: SidecarSettings,
        *,
        log_memory: LogMemory,
        modules: Modules,
        assaults: Assaults,
        backend: BackendLoggers | None,
        information: Callable[[], Mapping[str, Any]],
        shut_down: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._log_memory = log_memory
        self._modules = modules
        self._assaults = assaults
        self._backend = backend
        self._information = information
        self._shut_down = shut_down

    def routes(self) -> list[Route]:
        return CONTRACT.routes(
            self.get_server_info,
            self.get_loggers,
            self.set_loggers,
            self.get_log_content,
            self.get_modules,
            self.reload_modules,
            self.shutdown,
            self.get_assaults,
            self.set_assault,
        )

    async def get_server_info(self, request: Request) -> Response:
        if not self._settings.info_enabled:
            raise Fault(FaultKind.SERVER_INFO_DISABLED, "Server info is disabled (info_enabled).")
        return json_response(await asyncio.to_thread(self._information))

    async def get_loggers(self, request: Request) -> Response:
        self._check_loggers_enabled()
        if _passes_through(request):
            return json_response([asdict(one) for one in await self._backend_loggers().get()])
        return json_response([{"name": name, "level": level} for name, level in log_levels.levels().items()])

    async def set_loggers(self, request: Request) -> Response:
        self._check_loggers_enabled()
        body = await body_of(request, self._settings.max_request_bytes)
        if not body:
            raise Fault(FaultKind.REQUEST_BODY_MISSING, "The body is missing: send a list of {name, level}.")
        asked = operation_of(request).body(parsed(request, body))
        wanted = [LoggerLevel(one["name"], one["level"]) for one in asked]
        if _passes_through(request):
            return json_response([asdict(one) for one in await self._backend_loggers().set(wanted)])
        try:
            log_levels.set_levels({one.name: one.level for one in wanted})
        except log_levels.UnknownLevelError as error:
            raise invalid("", str(error)) from None
        return json_response([{"name": one.name, "level": log_levels.level_of(one.name)} for one in wanted])

    async def get_log_content(self, request: Request) -> Response:
        if not (self._settings.logger_enabled and self._settings.log_content_enabled):
            raise Fault(
                FaultKind.LOGGER_CONTENT_DISABLED,
                "Log lines are not kept for reading (logger_enabled, log_content_enabled).",
            )
        given = parameters(request)
        now = int(time.time() * 1000)
        asked = LogQuery(
            level=log_levels.number_of(given.get("loggerLevel", "ERROR")),
            start_ms=given.get("startTime", now - self._settings.log_content_default_ms),
            end_ms=given.get("endTime", now),
            logger=given.get("loggerName", "").removeprefix(log_levels.ROOT),
            offset=given.get("offset", 0),
            limit=given.get("limit", DEFAULT_LOG_LINES),
        )
        found = self._log_memory.find(asked)
        return json_response({name: {"total": one.total, "logs": one.logs} for name, one in found.items()})

    async def get_modules(self, request: Request) -> Response:
        self._check_reload_enabled()
        return json_response(self._modules.names)

    async def reload_modules(self, request: Request) -> Response:
        self._check_reload_enabled()
        asked = await checked_body(request, self._settings.max_request_bytes)
        return json_response(await self._modules.reload(asked or []))

    async def shutdown(self, request: Request) -> Response:
        self._shut_down()
        return json_response(
            {"time": int(time.time() * 1000), "serviceId": self._settings.service_id, "tag": self._settings.name}
        )

    async def get_assaults(self, request: Request) -> Response:
        return json_response(self._assaults.shown())

    async def set_assault(self, request: Request) -> Response:
        if not self._assaults.enabled:
            raise Fault(FaultKind.HANDLER_IS_DISABLED, "Handler Chaos Monkey is disabled.")
        name = request.path_params["assault"]
        known = self._assaults.shown()
        if name not in known:
            raise invalid("/assault", f"{name[:100]!r} is none of {', '.join(known)}")
        given = await checked_body(request, self._settings.max_request_bytes)
        try:
            return json_response(self._assaults.set(name, given).shown())
        except ValueError as error:
            raise invalid("", str(error)) from None

    def _check_loggers_enabled(self) -> None:
        if not self._settings.logger_enabled:
            raise Fault(FaultKind.LOGGER_INFO_DISABLED, "Logger info is disabled (logger_enabled).")

    def _check_reload_enabled(self) -> None:
        if not self._settings.config_reload_enabled:
            raise Fault(FaultKind.CONFIG_RELOAD_DISABLED, "Reloading is disabled (config_reload_enabled).")

    def _backend_loggers(self) -> BackendLoggers:
        if self._backend is None:
            raise Fault(
                FaultKind.DOWNSTREAM_ADMIN_DISABLED,
                f"{PASS_THROUGH}: calls are not passed on to the backend (logging_downstream_enabled).",
            )
        return self._backend


def _passes_through(request: Request) -> bool:
    return request.headers.get(PASS_THROUGH, "").lower() == "true"
