"""`python -m services.gateway`: one gateway in the foreground."""

import gc

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging, serve_management
from services.gateway import open_files
from services.gateway.downstream.gateway import Gateway
from services.gateway.settings import GatewaySettings


def main(argv: list[str] | None = None) -> None:
    settings = load(GatewaySettings, argv)
    configure_logging("gateway", level=settings.log_level)
    open_files.raise_limit()

    async def serve(lifecycle: Lifecycle) -> None:
        management = serve_management(settings.metrics_listen, lifecycle)
        gateway = Gateway(settings, lifecycle)
        try:
            await gateway.start()
            gc.freeze()  # what is loaded by now stays for good: collections need not walk over it
            await lifecycle.stopping.wait()
        finally:
            await gateway.stop()
            management.stop()

    run(serve)


if __name__ == "__main__":
    main()
