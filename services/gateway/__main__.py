"""`python -m services.gateway`: a gateway in the foreground, in one process or (`--workers N`) in several."""

# ruff: noqa: E402  # the first import keeps libraries out that the others would load
from mesh.lean import start_lean

start_lean()

from mesh.lifecycle import Lifecycle, run
from mesh.telemetry import configure_logging, serve_management
from services.gateway.downstream.gateway import Gateway
from services.gateway.serving import serve, stop_bound_s, warn_of_slow_modules
from services.gateway.settings import settings_of
from services.gateway.workers.supervisor import supervise


def main(argv: list[str] | None = None) -> None:
    settings = settings_of(argv)
    configure_logging("gateway", level=settings.log_level)
    warn_of_slow_modules()

    async def alone(lifecycle: Lifecycle) -> None:
        management = serve_management(settings.metrics_listen, lifecycle)
        try:
            await serve(Gateway(settings, lifecycle), lifecycle)
        finally:
            management.stop()

    async def several(lifecycle: Lifecycle) -> None:
        await supervise(settings, lifecycle)

    run(alone if settings.workers == 1 else several, stop_timeout=stop_bound_s(settings))


if __name__ == "__main__":
    main()
