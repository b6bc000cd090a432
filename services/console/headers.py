"""The door: names of the host that count, and headers that bind browsers to the console's own files."""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.console import metrics

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy: no script and no style inside a page, and no other host."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
STATIC = "/static/"
STREAM = "/live/"


class Door:
    """Wraps the application. A request to another name of the host gets 421: a page of a stranger can't read this one,
    also if the stranger's name leads to this address (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        path: str = scope["path"]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache" if path.startswith(STATIC) else "no-store")
                if not path.startswith(STREAM):
                    status = f"{message['status'] // 100}xx"
                    metrics.request_seconds.labels(status).observe(time.perf_counter() - began)
            await send(message)

        if host_of(Headers(scope=scope)) not in self._hosts:
            answer = PlainTextResponse("The console is not called by this name: see its setting hosts.\n", 421)
            await answer(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def host_of(headers: Headers) -> str:
    """The header Host without its port."""
    host = headers.get("host", "")
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


def is_from_here(headers: Headers) -> bool:
    """Whether a page of this console sent a form, as far as the browser says. A proxy may have changed the scheme."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin"):
        return False
    return origin is None or origin.partition("://")[2] == headers.get("host", "")
