"""The settings that the table of services gives are settings that the services have."""

from __future__ import annotations

import importlib

import pytest

from local.services import SERVICES, Service
from mesh.settings import ServiceSettings


@pytest.mark.parametrize(
    "row", [row for row in SERVICES if f"{row.name}-metrics" in row.ports], ids=lambda row: row.name
)
def test_every_setting_is_known(row: Service) -> None:
    module = importlib.import_module(f"services.{row.name}.settings")
    classes = [value for value in vars(module).values() if isinstance(value, type) and value is not ServiceSettings]
    (settings,) = [value for value in classes if issubclass(value, ServiceSettings)]
    prefix = f"KAFKA_MESH_{row.name.upper()}_"

    assert {key.removeprefix(prefix).lower() for key in row.settings} <= set(settings.model_fields)
