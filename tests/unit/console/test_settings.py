"""What the console may do without a log-in, and whom it answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mesh.connection_security import Protocol
from services.console.settings import ConsoleSettings, ReadWithoutLogin


@pytest.mark.parametrize(
    ("listen", "setting", "reads"),
    [
        ("127.0.0.1:8090", ReadWithoutLogin.LOOPBACK, True),
        ("0.0.0.0:8090", ReadWithoutLogin.LOOPBACK, False),
        ("0.0.0.0:8090", ReadWithoutLogin.ALWAYS, True),
        ("127.0.0.1:8090", ReadWithoutLogin.NEVER, False),
    ],
)
def test_reading_without_a_log_in(listen: str, setting: ReadWithoutLogin, reads: bool) -> None:
    settings = ConsoleSettings(listen=listen, read_without_login=setting, allow_insecure=True)
    assert settings.reads_without_login is reads


def test_the_default_reads_on_this_machine_alone() -> None:
    assert ConsoleSettings().reads_without_login
    assert not ConsoleSettings(listen="10.0.0.1:8090", allow_insecure=True).reads_without_login


def test_tokens_do_not_travel_in_the_open() -> None:
    with pytest.raises(ValidationError, match="others could read tokens"):
        ConsoleSettings(listen="0.0.0.0:8090")


def test_a_proxy_with_tls_makes_cookies_secure() -> None:
    assert ConsoleSettings(listen="0.0.0.0:8090", tls_in_front=True).browsers_use_tls
    assert not ConsoleSettings().browsers_use_tls


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ValidationError, match="belong together"):
        ConsoleSettings(tls_certificate=Path("x.pem"))


def test_names_of_this_machine_and_given_names_count() -> None:
    known = ConsoleSettings(listen="127.0.0.2:8090", hosts=("mesh.example",)).known_hosts
    assert {"localhost", "127.0.0.1", "[::1]", "127.0.0.2", "mesh.example"} == known


def test_tokens_do_not_go_to_a_gateway_in_the_open() -> None:
    with pytest.raises(ValidationError, match="tokens would travel in the open"):
        ConsoleSettings(gateway_address="gateway.example:9092", gateway_protocol=Protocol.SASL_PLAINTEXT)
    assert ConsoleSettings(gateway_address="gateway.example:9093").gateway_protocol is Protocol.SASL_SSL
