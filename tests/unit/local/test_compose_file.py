"""docker-compose.yml runs the rows of the table of services: same names, commands, settings, needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from local.services import SERVICES, Service

ROOT = Path(__file__).parents[3]
NOT_IN_CONTAINERS = {"jars"}  # the image of Kafka brings them
ONLY_IN_CONTAINERS = {  # a container listens on all of its own interfaces
    f"KAFKA_MESH_{service}_ALLOW_INSECURE" for service in ("CONTROL", "ROUTER", "SIDECAR")
}
ROWS = [row for row in SERVICES if row.name not in NOT_IN_CONTAINERS]


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    return services


def test_the_same_services(composed: dict[str, Any]) -> None:
    assert set(composed) == {row.name for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_same_needs(row: Service, composed: dict[str, Any]) -> None:
    steps = {other.name for other in SERVICES if other.is_step}
    for need, how in composed[row.name].get("depends_on", {}).items():
        assert how["condition"] == ("service_completed_successfully" if need in steps else "service_healthy")

    assert set(composed[row.name].get("depends_on", {})) == set(row.needs) - NOT_IN_CONTAINERS


@pytest.mark.parametrize("row", [row for row in ROWS if row.module == "local.cli"], ids=lambda row: row.name)
def test_the_same_command_and_settings(row: Service, composed: dict[str, Any]) -> None:
    assert tuple(composed[row.name]["command"]) == row.arguments
    assert set(composed[row.name]["environment"]) - ONLY_IN_CONTAINERS == set(row.settings)
