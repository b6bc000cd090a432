"""Services without authentication listen on this machine alone, unless somebody says otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from services.control.settings import ControlSettings
from services.router.settings import RouterSettings

NEEDED = {"database_url": "postgresql://mesh@127.0.0.1/mesh", "home_bootstrap_servers": "127.0.0.1:9092"}
SERVICES: list[tuple[Any, dict[str, str]]] = [(ControlSettings, NEEDED), (RouterSettings, {})]


@pytest.mark.parametrize(("settings", "needed"), SERVICES)
@pytest.mark.parametrize("address", ["0.0.0.0:7070", "[::]:7070", "10.1.2.3:7070", "mesh.example.com:7070"])
def test_an_address_that_others_reach_is_refused(settings: Any, needed: dict[str, str], address: str) -> None:
    with pytest.raises(ValidationError, match=r"listen .*allow_insecure \(KAFKA_MESH_\w+_ALLOW_INSECURE=1\)"):
        settings(**needed, listen=address)
    assert settings(**needed, listen=address, allow_insecure=True).listen == address


@pytest.mark.parametrize(("settings", "needed"), SERVICES)
@pytest.mark.parametrize("address", ["127.0.0.1:7070", "[::1]:7070", "localhost:7070"])
def test_an_address_of_this_machine_is_taken(settings: Any, needed: dict[str, str], address: str) -> None:
    assert settings(**needed, listen=address).listen == address
