"""`/health/...`: one word, as the original answers it; with `health_json` each check's result.

Liveness is this process: the loop answers and acknowledgements are read. Readiness adds Kafka and, if asked for, the
backend, so that an outage of brokers takes the sidecar out of service and does not restart it.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from services.sidecar.admin.health import Health
from services.sidecar.api.contract import CONTRACT
from services.sidecar.api.status import json_response


class HealthEndpoints:
    """Answers the monitoring of this sidecar."""

    def __init__(self, health: Health, *, as_json: bool) -> None:
        self._health = health
        self._as_json = as_json

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.liveness, self.readiness, self.named_readiness)

    def admin_routes(self) -> list[Route]:
        """The routes that need a token."""
        return CONTRACT.routes(self.admin_health)

    async def liveness(self, request: Request) -> Response:
        return self._answer(self._health.liveness())

    async def readiness(self, request: Request) -> Response:
        return self._answer(await self._health.readiness())

    async def named_readiness(self, request: Request) -> Response:
        return await self.readiness(request)

    async def admin_health(self, request: Request) -> Response:
        return await self.readiness(request)

    def _answer(self, faults: dict[str, str | None]) -> Response:
        healthy = not any(faults.values())
        status = 200 if healthy else 400
        if not self._as_json:
            return PlainTextResponse("OK" if healthy else "ERROR", status)
        checks = {check: fault or "OK" for check, fault in faults.items()}
        report: dict[str, object] = {"status": "OK" if healthy else "ERROR", "checks": checks}
        if details := self._health.details():
            report["details"] = details
        return json_response(report, status)
