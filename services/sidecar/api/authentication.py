"""Asks who calls, before a request's body is read: a token that counts, with the scopes that the operation names.

The guard stands around each route, so what the contract does not know is guarded too: whatever is under `/adm/` for
administrators, the rest for whoever has a token. A path that does not exist is 404 for everyone, as in the original.
Which topics a caller may touch is seen here where a path says it, and known elsewhere only to those who understand the
request: endpoints ask `caller_of(request)`, and `check_may_use` for whatever an instance reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from services.sidecar.api.contract import CONTRACT
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.security.callers import ADMIN, ANYONE, WRITE, Caller

if TYPE_CHECKING:
    from services.sidecar.security.tokens import TokenVerifier


_CALLER = "kafka_mesh.caller"


def guard(routes: Iterable[BaseRoute], verifier: TokenVerifier) -> None:
    """Lets nobody through to these routes without the token that they need."""
    for route in routes:
        if not isinstance(route, Route | Mount):
            raise TypeError(f"no guard fits around {route!r}")
        scopes = _scopes(route)
        if scopes is not None:
            route.app = _Guarded(route.app, verifier, scopes)


def caller_of(connection: HTTPConnection) -> Caller:
    """Who calls; anyone, where nobody is asked for a token."""
    caller: Caller = connection.scope.get(_CALLER, ANYONE)
    return caller


def check_may_use(connection: HTTPConnection, instance: ConsumerInstance) -> None:
    """Fault when an instance reads what is not this caller's, whoever made it do so."""
    interest = instance.interest
    topics = [*interest.topics, *(partition.topic for partition in interest.partitions)]
    caller_of(connection).check_reads(topics, interest.pattern or None)


def _scopes(route: Route | Mount) -> frozenset[str] | None:
    """None where nobody is asked for a token."""
    operation = CONTRACT.operations.get(route.name or "")
    if operation is not None:
        return operation.scopes or None
    return frozenset({ADMIN}) if f"{route.path}/".startswith("/adm/") else frozenset()


class _Guarded:
    """ASGI middleware around one route."""

    def __init__(self, app: ASGIApp, verifier: TokenVerifier, scopes: frozenset[str]) -> None:
        self._app = app
        self._verifier = verifier
        self._scopes = scopes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._verifier.caller(Headers(scope=scope).get("authorization", ""))
        caller.check_scopes(self._scopes)
        if WRITE in self._scopes and "topic" in scope["path_params"]:
            caller.check_writes([scope["path_params"]["topic"]])
        scope[_CALLER] = caller
        await self._app(scope, receive, send)
