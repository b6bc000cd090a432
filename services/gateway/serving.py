"""One gateway in this process, from its start to its end: alone, or as one of several workers."""

import gc

from mesh.lifecycle import Lifecycle
from services.gateway.downstream.gateway import Gateway
from services.gateway.settings import GatewaySettings

CLOSING_S = 10.0
"""What a stop may take beside the drain: the last words to routers and to the home cluster, and a margin."""


def stop_bound_s(settings: GatewaySettings) -> float:
    """How long a stop may take. Who is not done then is ended."""
    return settings.drain_timeout_s + CLOSING_S


async def serve(gateway: Gateway, lifecycle: Lifecycle) -> None:
    """Until it is told to stop."""
    try:
        await gateway.start()
        gc.freeze()  # what is loaded by now stays for good: collections need not walk over it
        await lifecycle.stopping.wait()
    finally:
        await gateway.stop()
