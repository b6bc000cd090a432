"""Lets assaults strike requests. Without an armed assault, a request pays one comparison."""

from __future__ import annotations

import asyncio
import os
import random
import signal

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from services.sidecar.admin.assaults import (
    Assault,
    Assaults,
    ExceptionAssault,
    KillappAssault,
    LatencyAssault,
    MemoryAssault,
)
from services.sidecar.admin.held_memory import HeldMemory
from services.sidecar.api.status import status_response
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.telemetry import metrics

SPARED = ("/adm/", "/health", "/spec")
"""The paths where an operator ends an assault, and those where others watch the sidecar."""

log = structlog.get_logger(__name__)


class Chaos:
    """ASGI middleware. `chance` selects the requests that are struck."""

    def __init__(self, app: ASGIApp, assaults: Assaults, memory: HeldMemory, chance: random.Random) -> None:
        self._app = app
        self._assaults = assaults
        self._memory = memory
        self._chance = chance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._assaults.any_armed and scope["type"] == "http" and not scope["path"].startswith(SPARED):
            for assault in self._assaults.striking(self._chance):
                metrics.assaults.labels(type(assault).__name__).inc()
                log.warning("an assault strikes", assault=type(assault).__name__, path=scope["path"])
                if not await self._goes_on(assault):
                    fault = Fault(FaultKind.RUNTIME_EXCEPTION, "Unexpected runtime exception (an assault, on purpose)")
                    await status_response(fault)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _goes_on(self, assault: Assault) -> bool:
        """Carries it out; whether the request is served all the same."""
        match assault:
            case LatencyAssault():
                await asyncio.sleep(assault.delay_seconds(self._chance))
            case MemoryAssault():
                self._memory.begin(assault)
            case KillappAssault():
                os.kill(os.getpid(), signal.SIGKILL)
            case ExceptionAssault():
                return False
        return True
