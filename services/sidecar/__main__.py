"""`python -m services.sidecar`: one sidecar in the foreground."""

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.sidecar.process import serve
from services.sidecar.settings import SidecarSettings


def main(argv: list[str] | None = None) -> None:
    """Runs until it is told to stop."""
    settings = load(SidecarSettings, argv)
    configure_logging("sidecar", level=settings.log_level)

    async def life(lifecycle: Lifecycle) -> None:
        await serve(settings, lifecycle)

    run(life)


if __name__ == "__main__":
    main()
