"""`kafka-mesh migrate`: brings control's database to the newest schema with Alembic."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

SETTING = "KAFKA_MESH_CONTROL_DATABASE_URL"


def migrate(database_url: str) -> None:
    from alembic import command
    from alembic.config import Config

    spec = find_spec("migrations")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package `migrations` is not installed")
    config = Config()
    config.set_main_option("script_location", str(Path(next(iter(spec.submodule_search_locations)))))
    # env.py reads the setting, as control does: one place for the address, nothing to quote.
    os.environ[SETTING] = database_url
    command.upgrade(config, "head")
