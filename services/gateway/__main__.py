"""`python -m services.gateway`: a gateway in the foreground, in one process or (`--workers N`) in several."""

import os
from argparse import ArgumentParser

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging, serve_management
from services.gateway.downstream.gateway import Gateway
from services.gateway.serving import serve, stop_bound_s, warn_of_slow_modules
from services.gateway.settings import GatewaySettings
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


def settings_of(argv: list[str] | None) -> GatewaySettings:
    """The settings. An option overrides the environment, and is checked in the same way."""
    options = ArgumentParser(add_help=False)
    options.add_argument("--workers", metavar="N", help="processes that serve clients, behind one address [1]")
    chosen, _ = options.parse_known_args(argv)
    if chosen.workers is not None:
        os.environ["KAFKA_MESH_GATEWAY_WORKERS"] = chosen.workers
    return load(GatewaySettings, argv, options=options)


if __name__ == "__main__":
    main()
