"""Settings that are refused at start, and what they say."""

import pytest
from pydantic import ValidationError

from services.sidecar.formats import Format
from services.sidecar.settings import SidecarSettings


@pytest.mark.parametrize("address", ["127.0.0.1:8084", "localhost:8084", "[::1]:8084"])
def test_listens_on_loopback(address: str) -> None:
    assert SidecarSettings(listen=address).listen == address


@pytest.mark.parametrize("address", ["0.0.0.0:8084", "10.1.2.3:8084", "[::]:8084", "sidecar.example:8084"])
def test_refuses_other_addresses_and_says_the_way_out(address: str) -> None:
    with pytest.raises(ValidationError, match="allow_insecure_bind"):
        SidecarSettings(listen=address)


def test_listens_anywhere_when_told_so_by_name() -> None:
    assert SidecarSettings(listen="0.0.0.0:8084", allow_insecure_bind=True).allow_insecure_bind


def test_default_formats_go_by_name_or_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_KEY_FORMAT", "binary")
    assert SidecarSettings(value_format=Format.STRING).key_format is Format.BINARY


def test_default_formats_that_need_a_registry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_VALUE_FORMAT", "avro")
    with pytest.raises(ValidationError, match="schema registry"):
        SidecarSettings()


def test_secrets_of_kafka_properties_do_not_show() -> None:
    settings = SidecarSettings.model_validate({"kafka_properties": {"sasl.password": "hunter2"}})
    assert "hunter2" not in repr(settings)


def test_an_empty_control_address_means_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_CONTROL_ADDRESS", "")
    assert SidecarSettings().control_address is None
