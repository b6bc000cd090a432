"""Settings about tokens that would let in more callers than meant are refused when control starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from services.control.settings import ControlSettings
from tests.fixtures.certificates import Authority
from tests.fixtures.members import certificate_of

ISSUER = {"issuer": "https://login.example", "jwks_url": "https://login.example/keys", "audience": "mesh"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate_of(Authority(tmp_path_factory.mktemp("authority")), "control", "control-1").folder


def settings(**said: Any) -> ControlSettings:
    return ControlSettings(
        database_url="postgresql://host/mesh",  # type: ignore[arg-type]  # pydantic makes it a secret
        home_bootstrap_servers=("c1:9092",),
        **said,
    )


def test_an_issuer_and_an_address_are_enough(folder: Path) -> None:
    made = settings(token_issuers=[ISSUER], token_listen="0.0.0.0:7071", rpc_tls_folder=folder)
    assert made.token_issuers[0].audience == ("mesh",)
    assert made.token_issuers[0].principal_prefix == "oidc:"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"token_issuers": [ISSUER]}, "set both, or neither"),
        ({"token_listen": "127.0.0.1:7071"}, "set both, or neither"),
        ({"token_issuers": [ISSUER], "token_listen": "127.0.0.1:7071", "rpc_tls_folder": None}, "by TLS alone"),
        ({"token_issuers": [ISSUER, ISSUER], "token_listen": "127.0.0.1:7071"}, "have the same issuer"),
        ({"token_issuers": [{**ISSUER, "audience": ""}], "token_listen": "127.0.0.1:7071"}, "any other service"),
        ({"token_issuers": [{**ISSUER, "issuer": ""}], "token_listen": "127.0.0.1:7071"}, "at least 1 character"),
        ({"token_issuers": [{**ISSUER, "jwks_url": "http://login.example/keys"}]}, "give an https address"),
    ],
)
def test_settings_that_let_in_more_callers_than_meant_are_refused(folder: Path, said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        settings(**{"rpc_tls_folder": folder, **said})
