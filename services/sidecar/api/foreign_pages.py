"""Keeps web pages away from a sidecar without authentication: a browser on the same machine may run any page.

1. A page of another site, or another port, is recognised by `Sec-Fetch-Site` and `Origin`: no page can set them.
2. A site whose name suddenly leads to this machine (DNS rebinding) is recognised by `Host`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mesh.settings import is_loopback
from services.sidecar.faults import Fault, FaultKind

_OTHERS = ("cross-site", "same-site")
"""Values of `Sec-Fetch-Site` for pages that this sidecar has not served (W3C Fetch Metadata, section 2.3)."""


def keep_foreign_pages_out(routes: Iterable[BaseRoute], *, loopback_only: bool) -> None:
    """Around each of these routes. `loopback_only`: the sidecar is reached by the names of this machine alone."""
    for route in routes:
        if isinstance(route, Route | Mount):
            route.app = _Guarded(route.app, loopback_only=loopback_only)


class _Guarded:
    """ASGI middleware around one route."""

    def __init__(self, app: ASGIApp, *, loopback_only: bool) -> None:
        self._app = app
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._loopback_only and not _is_this_machine(host):
            raise _refused(f"Host {host!r} is not a name of this machine: call 127.0.0.1 or localhost")
        if headers.get("sec-fetch-site") in _OTHERS:
            raise _refused("A page of another origin has sent this request")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise _refused(f"A page of the origin {origin!r} has sent this request")
        await self._app(scope, receive, send)


@lru_cache(maxsize=64)  # callers name few hosts, and each of their requests is checked
def _is_this_machine(host: str) -> bool:
    """Whether the header `Host` names this machine, or nothing."""
    name = urlsplit(f"//{host}").hostname or ""
    return not name or is_loopback(name) or name.endswith(".localhost")


def _refused(text: str) -> Fault:
    return Fault(FaultKind.REQUEST_OF_ANOTHER_ORIGIN, f"{text}; pages may call a sidecar that asks for tokens")
