"""Settings that are refused at start, and what they say."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from mesh.tokens.issuers import TokenIssuer
from services.sidecar.formats import Format
from services.sidecar.settings import SidecarSettings


@pytest.mark.parametrize("address", ["127.0.0.1:8084", "localhost:8084", "[::1]:8084"])
def test_listens_on_loopback(address: str) -> None:
    assert SidecarSettings(listen=address).listen == address


@pytest.mark.parametrize("address", ["0.0.0.0:8084", "10.1.2.3:8084", "[::]:8084", "sidecar.example:8084"])
def test_refuses_other_addresses_and_says_the_way_out(address: str) -> None:
    with pytest.raises(ValidationError, match="allow_insecure"):
        SidecarSettings(listen=address)


def test_listens_anywhere_when_told_so_by_name() -> None:
    assert SidecarSettings(listen="0.0.0.0:8084", allow_insecure=True).allow_insecure


def test_default_formats_go_by_name_or_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_KEY_FORMAT", "binary")
    assert SidecarSettings(value_format=Format.STRING).key_format is Format.BINARY


def test_default_formats_that_need_a_registry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_VALUE_FORMAT", "avro")
    with pytest.raises(ValidationError, match="schema registry"):
        SidecarSettings()


def test_where_there_is_a_registry_they_may_be_defaults() -> None:
    settings = SidecarSettings(schema_registry_url="https://registry.example/apis", value_format=Format.AVRO)
    assert settings.value_format is Format.AVRO


@pytest.mark.parametrize(
    "url", ["registry.example", "https://user:password@registry.example", "ftp://registry.example"]
)
def test_a_registry_is_an_address_without_secrets(url: str) -> None:
    with pytest.raises(ValidationError, match="schema_registry_url"):
        SidecarSettings(schema_registry_url=url)


def test_the_sidecar_is_one_caller_for_the_registry() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        SidecarSettings.model_validate({"schema_registry_user_info": "a:b", "schema_registry_token": "t"})


def test_secrets_of_the_registry_do_not_show() -> None:
    secrets = {"schema_registry_user_info": "a:hunter2", "schema_registry_key_password": "hunter2"}
    assert "hunter2" not in repr(SidecarSettings.model_validate(secrets))


def test_secrets_of_kafka_properties_do_not_show() -> None:
    settings = SidecarSettings.model_validate({"kafka_properties": {"sasl.password": "hunter2"}})
    assert "hunter2" not in repr(settings)


def test_an_empty_control_address_means_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_CONTROL_ADDRESSES", "")
    assert SidecarSettings().control_addresses == ()


ISSUER = {"jwks_url": "https://issuer.example/keys", "issuer": "https://issuer.example", "audience": "sidecar"}


def test_listens_anywhere_when_callers_show_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_TOKEN_ISSUERS", json.dumps([ISSUER]))
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_LISTEN", "0.0.0.0:8084")
    assert SidecarSettings().token_issuers[0].audience == ("sidecar",)


def test_listens_anywhere_when_callers_show_certificates() -> None:
    settings = SidecarSettings(listen="0.0.0.0:8084", tls=True, tls_client_ca=Path("ca.pem"))
    assert settings.asks_who_calls


def test_a_certificate_that_callers_may_leave_out_asks_nobody() -> None:
    with pytest.raises(ValidationError, match="allow_insecure"):
        SidecarSettings(listen="0.0.0.0:8084", tls=True, tls_client_ca=Path("ca.pem"), tls_client_optional=True)


def test_the_port_of_administrators_is_no_way_around() -> None:
    with pytest.raises(ValidationError, match=r"admin_listen 0\.0\.0\.0:8085"):
        SidecarSettings(admin_listen="0.0.0.0:8085")


@pytest.mark.parametrize("url", ["http://issuer.example/keys", "ftp://issuer.example/keys", "keys.json", ""])
def test_keys_come_by_https(url: str) -> None:
    with pytest.raises(ValidationError, match="give an https address"):
        TokenIssuer(jwks_url=url)


def test_or_from_this_machine() -> None:
    assert TokenIssuer(jwks_url="http://127.0.0.1:6882/keys").issuer == ""


def test_issuers_are_told_apart() -> None:
    with pytest.raises(ValidationError, match="a token would belong to both"):
        SidecarSettings.model_validate({"token_issuers": [ISSUER, {**ISSUER, "jwks_url": "https://other.example/"}]})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tls_certificate": "c.pem"}, "belong together"),
        ({"tls_key": "k.pem"}, "belong together"),
        ({"tls": True, "state_dir": ""}, "needs state_dir"),
        ({"tls_client_ca": "ca.pem"}, "is for TLS"),
        ({"tls_client_crl": "crl.pem"}, "revokes certificates of tls_client_ca"),
    ],
)
def test_tls_that_is_not_whole_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        SidecarSettings.model_validate(settings)


@pytest.mark.parametrize("address", ["localhost:8081", "http://[", "ftp://backend", "http://a b", "http://"])
@pytest.mark.parametrize("name", ["influx_url", "downstream_host"])
def test_what_is_asked_over_http_has_an_address(name: str, address: str) -> None:
    with pytest.raises(ValidationError, match=name):
        SidecarSettings.model_validate({name: address})


@pytest.mark.parametrize(
    "address", ["http://[::1]:8086/api/v2/write?org=o&bucket=b", "https://u:p@influx.example/write?db=d"]
)
def test_addresses_have_ports_paths_and_queries(address: str) -> None:
    assert SidecarSettings(influx_url=address).influx_url == address


def test_a_transaction_shorter_than_kafka_takes_is_refused() -> None:
    with pytest.raises(ValidationError, match="transaction_timeout_ms"):
        SidecarSettings(transaction_timeout_ms=999)


@pytest.mark.parametrize("hosts", [("web1.dc1", "web1.dc2"), (f"{'w' * 70}1", f"{'w' * 70}2")])
def test_sidecars_on_two_hosts_have_two_names(monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, str]) -> None:
    names = set()
    for host in hosts:
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        names.add(SidecarSettings().name)
    assert len(names) == 2
