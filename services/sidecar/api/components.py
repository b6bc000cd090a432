"""Operations of parts that are switched off answer with an error, as the original's do without their hook."""

from collections.abc import Iterable

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from services.sidecar.faults import Fault, FaultKind

NO_PRODUCER = Fault(FaultKind.PRODUCER_NOT_ENABLED, "Producer is not enabled for this sidecar; set producer_enabled")
NO_CONSUMERS = Fault(
    FaultKind.STARTUP_HOOK_NOT_LOADED,
    "Startup hook ActiveConsumerStartupHook is not loaded properly; set consumers_enabled, or add it to the hooks",
)


def switch_off(routes: Iterable[BaseRoute], *, produces: bool, consumes: bool) -> None:
    """Makes routes of parts that are off answer with an error."""
    for route in routes:
        if not isinstance(route, Route):
            continue
        if (
            not produces
            and route.path.startswith(("/producers/", "/transactions", "/topics/"))
            and "POST" in (route.methods or ())
        ):
            route.app = _Refusing(NO_PRODUCER)
        elif not consumes and route.path.startswith("/consumers/{group}"):
            route.app = _Refusing(NO_CONSUMERS)


class _Refusing:
    """ASGI application in place of one that is off."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise Fault(self._fault.kind, self._fault.description)
