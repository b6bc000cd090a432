"""`python -m services.router`: runs the router in the foreground."""

from __future__ import annotations

import logging

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.router.app import serve
from services.router.settings import RouterSettings

STOP_TIMEOUT = 5.0
"""Seconds that a stop may take; it takes less than one unless Kafka hangs."""
CHATTY_LIBRARIES = ("aiokafka", "faust", "mode")


def main(argv: list[str] | None = None) -> None:
    settings = load(RouterSettings, argv)
    configure_logging("router", level=settings.log_level)
    for library in CHATTY_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))

    async def router(lifecycle: Lifecycle) -> None:
        await serve(settings, lifecycle)

    run(router, stop_timeout=STOP_TIMEOUT)


if __name__ == "__main__":
    main()
