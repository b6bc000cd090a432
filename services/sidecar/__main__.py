"""`python -m services.sidecar`: one sidecar in the foreground."""

# ruff: noqa: E402  # the first import keeps libraries out that the others would load
from mesh.lean import start_lean

start_lean()

import gc
import os
from argparse import ArgumentParser

import structlog

from mesh.lifecycle import Lifecycle, run
from mesh.settings import load
from mesh.telemetry import configure_logging
from services.sidecar.admin import log_levels
from services.sidecar.process import serve
from services.sidecar.settings import SidecarSettings

ORIGINAL_CONFIG = "KAFKA_MESH_SIDECAR_ORIGINAL_CONFIG_DIR"

log = structlog.get_logger(__name__)

COLLECT_AFTER_OBJECTS = 50_000
"""Requests make many objects and hardly a cycle.

With Python's usual threshold, the search for cycles would cost a tenth more.
"""


def main(argv: list[str] | None = None) -> None:
    """Runs until a signal stops the process."""
    options = ArgumentParser(add_help=False)
    options.add_argument(
        "--original-config", metavar="DIR", help=f"the light-4j sidecar's YAML files; the same as {ORIGINAL_CONFIG}"
    )
    if folder := options.parse_known_args(argv)[0].original_config:
        os.environ[ORIGINAL_CONFIG] = folder
    settings = load(SidecarSettings, argv, options=options)
    configure_logging("sidecar", level=settings.log_level)
    log_levels.quieten()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, 50, 50)
    for text in settings.original_warnings:
        log.warning("the original's configuration", folder=str(settings.original_config_dir), text=text)

    async def life(lifecycle: Lifecycle) -> None:
        await serve(settings, lifecycle)

    run(life)


if __name__ == "__main__":
    main()
