"""One gateway in this process, from its start to its end: alone, or as one of several workers."""

import gc

import structlog

from mesh.lifecycle import Lifecycle
from services.gateway import WHY_NOT_COMPILED, metrics
from services.gateway.downstream.gateway import Gateway
from services.gateway.settings import GatewaySettings

log = structlog.get_logger(__name__)

CLOSING_S = 10.0
"""Time that a stop may take beside the drain: the goodbye to routers, the last home cluster reports, a margin."""

COLLECT_AFTER_OBJECTS = 20_000
"""Python's 700 are a few requests on their way, of which none is garbage: 8 to 17 % of the CPU was collections."""
COLLECT_YOUNG_AFTER = 5
"""Collections of new objects until those that stayed are looked through, too. Clients' connections that have ended are
garbage: with 50, the gateway stood still for 0.8 s after 5,000 clients had left."""
COLLECT_ALL_AFTER = 20
"""Collections of those until all objects are looked through: 25,000 connections that have ended may wait."""


def stop_bound_s(settings: GatewaySettings) -> float:
    """How long a stop may take. A process that is not done by then is killed."""
    return settings.drain_timeout_s + CLOSING_S


def warn_of_slow_modules(why: str | None = WHY_NOT_COMPILED) -> None:
    """Logs one line if the modules that records pass run as Python, which is right, but slower."""
    if why is not None:
        log.warning("the modules that records pass run as Python: build where a C compiler is", reason=why)


async def serve(gateway: Gateway, lifecycle: Lifecycle) -> None:
    """Serve until the lifecycle stops."""
    metrics.walks.info({"run": "compiled" if WHY_NOT_COMPILED is None else "python"})
    try:
        await gateway.start()
        gc.freeze()  # what is loaded by now stays for good: collections need not walk over it
        gc.set_threshold(COLLECT_AFTER_OBJECTS, COLLECT_YOUNG_AFTER, COLLECT_ALL_AFTER)
        await lifecycle.stopping.wait()
    finally:
        await gateway.stop()
