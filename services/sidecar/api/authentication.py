"""Authenticates the caller before a request's body is read: by a valid token with the scopes of the operation.

The guard stands around each route, so it also guards paths outside the contract. Paths under `/adm/` need an
administrator's token; all others need any valid token. A path that does not exist is 404 for everyone, as in the
original. This module checks topics that the path names. Only endpoints understand the other topics of a request: they
use `caller_of(request)`, and `check_may_use` for the topics of an instance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from services.sidecar.api.contract import ContractRoute
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.security.callers import ADMIN, ANYONE, WRITE, Caller

if TYPE_CHECKING:
    from services.sidecar.security.tokens import TokenVerifier


_CALLER = "kafka_mesh.caller"


def guard(routes: Iterable[BaseRoute], verifier: TokenVerifier) -> None:
    """Guards these routes: a request without the needed token does not reach them."""
    for route in routes:
        if not isinstance(route, Route | Mount):
            raise TypeError(f"no guard fits around {route!r}")
        scopes = _scopes(route)
        if scopes is not None:
            route.app = _Guarded(route.app, verifier, scopes)


def caller_of(connection: HTTPConnection) -> Caller:
    """The caller; `ANYONE` if the sidecar asks for no token."""
    caller: Caller = connection.scope.get(_CALLER, ANYONE)
    return caller


def check_may_use(connection: HTTPConnection, instance: ConsumerInstance) -> None:
    """Fault if the instance reads a topic that this caller may not read, even if another caller subscribed it."""
    interest = instance.interest
    topics = [*interest.topics, *(partition.topic for partition in interest.partitions)]
    caller_of(connection).check_reads(topics, interest.pattern or None)


def _scopes(route: Route | Mount) -> tuple[frozenset[str], ...] | None:
    """The sets of scopes of which a token needs one; None if the route needs no token."""
    if isinstance(route, ContractRoute):
        return route.operation.scopes or None
    return (frozenset({ADMIN} if f"{route.path}/".startswith("/adm/") else ()),)


class _Guarded:
    """ASGI middleware around one route."""

    def __init__(self, app: ASGIApp, verifier: TokenVerifier, scopes: tuple[frozenset[str], ...]) -> None:
        self._app = app
        self._verifier = verifier
        self._scopes = scopes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._verifier.caller(Headers(scope=scope).get("authorization", ""))
        caller.check_scopes(self._scopes)
        if all(WRITE in one for one in self._scopes) and "topic" in scope["path_params"]:
            caller.check_writes([scope["path_params"]["topic"]])
        scope[_CALLER] = caller
        await self._app(scope, receive, send)
