"""`kafka-mesh pipeline serve`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mesh.lifecycle import Lifecycle, run
from services.pipeline.commands.foreground import DEFAULT_GATEWAY, config_option, require_spark, settings_of


@click.command("serve")
@config_option
@click.pass_obj
def serve_command(gateway: str | None, config: Path | None) -> None:
    """Carry out the orders of control and run the continuous jobs of the settings, until SIGTERM."""
    settings = settings_of(config)
    require_spark()
    from services.pipeline.serving.process import serve, stop_bound_s

    if config is not None:
        os.environ["KAFKA_MESH_CONFIG"] = str(config.resolve())  # the drivers read their settings from it too

    async def life(lifecycle: Lifecycle) -> None:
        await serve(settings, gateway or DEFAULT_GATEWAY, lifecycle)

    run(life, uvloop=False, stop_timeout=stop_bound_s(settings))
