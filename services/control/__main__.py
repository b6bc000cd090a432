"""`kafka-mesh control`: runs the control plane in the foreground."""

from __future__ import annotations

# ruff: noqa: E402  # the first import keeps libraries out that the others would load
from mesh.lean import start_lean

start_lean()

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.control.process import serve
from services.control.settings import ControlSettings


def main(argv: list[str] | None = None) -> None:
    settings = load(ControlSettings, argv)
    configure_logging("control", level=settings.log_level)

    async def service(lifecycle: Lifecycle) -> None:
        await serve(settings, lifecycle)

    run(service)


if __name__ == "__main__":
    main()
