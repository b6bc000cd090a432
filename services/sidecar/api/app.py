"""The application: routes, errors, and the middleware around every exchange."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.exchange import Exchange
from services.sidecar.api.status import on_fault, on_hang_up, on_http_exception, on_surprise
from services.sidecar.faults import Fault

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

ErrorHandlers = Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]
OURS: ErrorHandlers = {
    Fault: on_fault,
    HTTPException: on_http_exception,
    ClientDisconnect: on_hang_up,
    Exception: on_surprise,
}
"""Errors in the form of this sidecar's contract."""


def build_app(
    routes: Sequence[Route],
    middleware: Sequence[Middleware] = (),
    errors: ErrorHandlers = OURS,
    tracer: "Tracer | None" = None,
) -> Starlette:
    """The ASGI application of these routes; `middleware` stands around them, within the exchange."""
    app = Starlette(
        routes=list(routes),
        middleware=[Middleware(Exchange, tracer), *middleware],
        exception_handlers=dict(errors),
    )
    app.router.redirect_slashes = False  # a path that is not in the contract is none
    return app
