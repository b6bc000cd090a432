"""Assembles the parts that query ksqlDB: queries for the backend, and the followed query."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from starlette.routing import Route

from services.sidecar.api.ksqldb import KsqldbEndpoints
from services.sidecar.delivering.backend import Backend
from services.sidecar.delivering.failures import Blame, CallFailedError
from services.sidecar.ksqldb.active_query import Asking
from services.sidecar.ksqldb.client import KsqldbClient
from services.sidecar.ksqldb.row_follower import NotTaken, RowFollower
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.delivering import backend_access


class KsqldbParts:
    """The ksqlDB queries of one sidecar, made within a running loop."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._backend: Backend | None = None
        self._backend_path = settings.ksqldb_backend_path
        self._client = KsqldbClient(settings.ksqldb_options()) if settings.ksqldb_url else None
        asks = self._client if settings.ksqldb_active_enabled else None
        self._endpoints = KsqldbEndpoints(
            Asking(asks, settings.answer_limits()), max_request_bytes=settings.max_request_bytes
        )
        self._follower: RowFollower | None = None
        if self._client is not None and settings.ksqldb_query:
            self._backend = _backend(settings)
            self._follower = RowFollower(
                self._client, settings.followed_query(), settings.follow_limits(), partial(self._give, self._backend)
            )

    def routes(self) -> list[Route]:
        return self._endpoints.routes()

    def checks(self) -> Mapping[str, tuple[Callable[[], Awaitable[str | None]], Callable[[], object]]]:
        """The checks for health, by name: the problem, and the details."""
        return {"ksqldb": (self._follower.fault, self._follower.details)} if self._follower is not None else {}

    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that run as long as the process serves."""
        return [asyncio.create_task(self._follower.run(), name="ksqldb")] if self._follower is not None else []

    async def close(self) -> None:
        if self._backend is not None:
            await self._backend.close()
        if self._client is not None:
            await self._client.close()

    async def _give(self, backend: Backend, body: bytes) -> None:
        """Gives rows to the backend.

        A row that may break the backend comes again, too: there is no other place to keep the row.
        """
        try:
            await backend.call(self._backend_path, body, {"Content-Type": "application/json"})
        except CallFailedError as failure:
            raise NotTaken(failure.reason, refused=failure.blame is Blame.RECORDS, pause=failure.retry_after) from None


def _backend(settings: SidecarSettings) -> Backend:
    """The backend that gets rows: the usual backend, or another address if one is set for rows."""
    access = backend_access(settings)
    return Backend(replace(access, url=settings.ksqldb_backend_url or access.url))
