"""docker-compose.yml runs the rows of the table of services: same names, commands, settings, needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.owners import SERVERS, Owner, parse_owner
from local.services import SERVICES, TLS_SETTING, Service

ROOT = Path(__file__).parents[3]
NOT_IN_CONTAINERS = {"jars", "console"}  # the image of Kafka brings the jars; the console is not in an image yet
# a container listens on all of its own interfaces
ONLY_IN_CONTAINERS = {"KAFKA_MESH_GATEWAY_ALLOW_INSECURE", "KAFKA_MESH_SIDECAR_ALLOW_INSECURE"}
FOLDER = "/etc/kafka-mesh/certificates"
WITH_CERTIFICATES = ("control", "router", "gateway", "sidecar", "pipeline")
ROWS = [row for row in SERVICES if row.name not in NOT_IN_CONTAINERS]


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    return services


def test_the_same_services(composed: dict[str, Any]) -> None:
    by_default = {name for name, service in composed.items() if "profiles" not in service}
    assert by_default == {row.name for row in ROWS}


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


def test_only_this_machine_reaches_the_ports(composed: dict[str, Any]) -> None:
    ports = [port for service in composed.values() for port in service.get("ports", ())]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


@pytest.fixture(scope="module")
def owners(composed: dict[str, Any]) -> dict[str, Owner]:
    """By the names of their folders."""
    found = map(parse_owner, composed["certificates"]["environment"]["KAFKA_MESH_CERTIFICATES_OWNERS"].split())
    return {owner.folder: owner for owner in found}


def volumes(service: dict[str, Any]) -> set[str]:
    return {volume for volume in service.get("volumes", ()) if volume.startswith("certificates-")}


@pytest.mark.parametrize("name", WITH_CERTIFICATES)
def test_each_member_has_its_own_certificate_and_no_other(
    name: str, composed: dict[str, Any], owners: dict[str, Owner]
) -> None:
    settings = composed[name]["environment"]
    prefix = f"KAFKA_MESH_{name.upper()}_"
    assert settings[prefix + TLS_SETTING] == f"{FOLDER}/{name}"
    assert volumes(composed[name]) == {f"certificates-{name}:{FOLDER}/{name}:ro"}
    assert (owners[name].role, owners[name].name) == (name, settings.get(f"{prefix}NAME", f"{name}-1"))
    assert (name in owners[name].hosts) == (name in SERVERS)  # containers reach each other by the service's name


def test_only_the_step_that_signs_has_the_authority(composed: dict[str, Any], owners: dict[str, Owner]) -> None:
    holders = [name for name, service in composed.items() if "certificates-authority" in str(service)]
    assert holders == ["certificates"]
    assert volumes(composed["certificates"]) == {
        f"certificates-{name}:{FOLDER}/{name}" for name in (*owners, "authority")
    }


def test_the_image_has_a_folder_for_each_volume_with_certificates(owners: dict[str, Owner]) -> None:
    """Docker gives a new volume the owner of this folder; without it, the user of the image can't write there."""
    (line,) = re.findall(r"for owner in (.*); do", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"))
    assert set(line.split()) == {".", "authority", *owners}
