"""The gateway's settings: several networks, each told its own address."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.gateway.requests.nodes import Advertised
from services.gateway.settings import GatewaySettings


def test_each_listener_tells_its_clients_its_own_address() -> None:
    settings = GatewaySettings(listen=("0.0.0.0:19092", "0.0.0.0:9092"), advertised=("127.0.0.1:19092", "gateway:9092"))
    assert settings.listeners == [
        ("0.0.0.0:19092", Advertised("127.0.0.1", 19092)),
        ("0.0.0.0:9092", Advertised("gateway", 9092)),
    ]


def test_a_listener_is_advertised_as_it_is_unless_told_otherwise() -> None:
    assert GatewaySettings(listen=("127.0.0.1:5",)).listeners == [("127.0.0.1:5", Advertised("127.0.0.1", 5))]


def test_a_missing_advertised_address_is_named_at_the_start() -> None:
    with pytest.raises(ValidationError, match="advertised names 1 addresses for 2 of listen"):
        GatewaySettings(listen=("0.0.0.0:1", "0.0.0.0:2"), advertised=("a:1",))
