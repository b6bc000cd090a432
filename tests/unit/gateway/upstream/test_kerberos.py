"""The conversation of GSSAPI step by step, with a stand-in for the library, which most machines lack.

What the library and a real KDC say is tried in tests/integration/gateway/test_kerberos.py, where they are installed.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from services.gateway.upstream.kerberos import Kerberos
from services.gateway.upstream.sasl import Conversation, LoginRefusedError

NO_LAYER_OFFERED = b"\x01\x00\x00\x00"


class GSSError(Exception):
    """As the library's."""


class StandInContext:
    """Knows the broker after one answer."""

    def __init__(self, said: dict[str, Any], **how: Any) -> None:
        said.update(how)
        self.complete = False

    def step(self, token: bytes | None) -> bytes | None:
        if token == b"not for you":
            raise GSSError("Major (851968): Unspecified GSS failure.\nMinor: Server not found in Kerberos database")
        self.complete = token is not None
        return None if token is not None else b"ticket"

    def unwrap(self, wrapped: bytes) -> SimpleNamespace:
        return SimpleNamespace(message=wrapped.removeprefix(b"wrapped "))

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + message)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the library is told about the context that it shall make."""
    told: dict[str, Any] = {}
    stand_in = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=GSSError),
        Name=lambda text, kind: (kind, text),
        NameType=SimpleNamespace(hostbased_service="service", kerberos_principal="principal"),
        MechType=SimpleNamespace(kerberos="kerberos"),
        RequirementFlag=SimpleNamespace(mutual_authentication=2, integrity=32),
        Credentials=lambda **how: how,
        SecurityContext=lambda **how: StandInContext(told, **how),
    )
    monkeypatch.setitem(sys.modules, "gssapi", stand_in)
    return told


def conversation(keytab: str = "") -> Conversation:
    return Kerberos("kafka", "mesh@FRUIT" if keytab else "", keytab).conversation("broker1")


def test_a_login_step_by_step(said: dict[str, Any]) -> None:
    talk = conversation()
    assert talk.first() == b"ticket"
    assert talk.next(b"I am the broker") == b""
    assert talk.next(b"wrapped " + NO_LAYER_OFFERED) == b"wrapped " + NO_LAYER_OFFERED
    assert talk.next(b"") is None


def test_the_service_is_that_of_the_brokers_host(said: dict[str, Any]) -> None:
    conversation().first()
    assert said["name"] == ("service", "kafka@broker1")
    assert said["creds"] is None, "the process's own count"
    assert said["flags"] == 2 | 32, "the broker has to prove itself too"


def test_a_keytab_has_a_cache_of_its_own(said: dict[str, Any]) -> None:
    conversation("/mesh.keytab").first()
    assert said["creds"] == {
        "usage": "initiate",
        "name": ("principal", "mesh@FRUIT"),
        "store": {"client_keytab": "/mesh.keytab", "ccache": "MEMORY:/mesh.keytab"},
    }


def test_a_refusal_says_for_which_service_and_why(said: dict[str, Any]) -> None:
    talk = conversation()
    talk.first()
    with pytest.raises(LoginRefusedError, match=r"^no ticket for kafka@broker1: .* Minor: Server not found"):
        talk.next(b"not for you")


@pytest.mark.parametrize("offer", [b"\x06\x00\x00\x00", b"\x01", b""])
def test_a_broker_that_insists_on_a_layer_is_refused(said: dict[str, Any], offer: bytes) -> None:
    talk = conversation()
    talk.first()
    talk.next(b"I am the broker")
    with pytest.raises(LoginRefusedError, match="insists on a security layer"):
        talk.next(b"wrapped " + offer)
