"""`python -m services.console`: runs the console in the foreground."""

from __future__ import annotations

# ruff: noqa: E402  # the first import keeps libraries out that the others would load
from mesh.lean import start_lean

start_lean("greenlet", "snappy")  # structlog loads the one for other threads, prometheus_client the other

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.console.process import serve
from services.console.records.kafka import few_arenas
from services.console.settings import ConsoleSettings

STOP_TIMEOUT = 10.0
"""Seconds that a stop may take; open pages end their streams at once."""


def main(argv: list[str] | None = None) -> None:
    few_arenas()
    settings = load(ConsoleSettings, argv)
    configure_logging("console", level=settings.log_level)

    async def console(lifecycle: Lifecycle) -> None:
        await serve(settings, lifecycle)

    run(console, stop_timeout=STOP_TIMEOUT)


if __name__ == "__main__":
    main()
