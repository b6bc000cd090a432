"""`python -m services.router`: runs the router in the foreground."""

from __future__ import annotations

# ruff: noqa: E402  # the first import keeps libraries out that the others would load
from mesh.lean import start_lean

start_lean()

import logging

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.router.app import serve
from services.router.settings import RouterSettings

STOP_TIMEOUT = 15.0
"""Seconds that a stop may take: less than one, unless Kafka hangs or thousands of gateways have to be sent away."""
LIBRARIES = ("aiokafka", "faust", "mode")
REPEAT_AFTER = 30.0
"""Seconds until the same place in a library may log again."""


def main(argv: list[str] | None = None) -> None:
    settings = load(RouterSettings, argv)
    configure_logging("router", level=settings.log_level)
    if settings.log_level != "DEBUG":
        _quieten()

    async def router(lifecycle: Lifecycle) -> None:
        await serve(settings, lifecycle)

    run(router, stop_timeout=STOP_TIMEOUT)


def _quieten() -> None:
    """While the cluster is down, aiokafka logs that ten times a second; here each place of its code may log twice a
    minute.
    """
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Sparing())


class _Sparing(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in LIBRARIES:
            return True
        place = (record.name, record.lineno)
        if record.created - self._last.get(place, -REPEAT_AFTER) < REPEAT_AFTER:
            return False
        self._last[place] = record.created
        return True


if __name__ == "__main__":
    main()
