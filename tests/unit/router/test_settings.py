"""What the router is told of its home cluster, checked at the start."""

from __future__ import annotations

import json

import pytest

from mesh.connection_security import ConnectionSecurity, Mechanism, PasswordLogin
from mesh.settings import load
from services.router.forwarding.registry_access import RegistryAccess
from services.router.settings import RouterSettings

SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "mesh",
    "sasl.password": "hunter2",
}


def test_home_properties_are_the_security_of_the_home_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_ROUTER_HOME_PROPERTIES", json.dumps(SCRAM))
    assert load(RouterSettings, []).home_security == ConnectionSecurity(
        login=PasswordLogin(Mechanism.SCRAM_SHA_256, "mesh", "hunter2")
    )


def test_without_them_connections_are_plain() -> None:
    assert RouterSettings().home_security == ConnectionSecurity()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"security.protocl": "ssl"}, "security.protocl: is no property of a connection"),
        ({"security.protocol": "quantum"}, "security.protocol: 'quantum' is not served"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanisms: GSSAPI is not served for the home cluster"),
        ({"sasl.username": ""}, "sasl.username: must be set"),
        ({"security.protocol": "SASL_SSL", "ssl.crl.location": "/crl"}, "ssl.crl.location: is not served"),
    ],
)
def test_what_is_not_served_ends_the_start_with_the_property(
    wrong: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_MESH_ROUTER_HOME_PROPERTIES", json.dumps(SCRAM | wrong))
    with pytest.raises(SystemExit):
        load(RouterSettings, [])
    told = capsys.readouterr().err
    assert told.startswith("kafka-mesh router: home_properties (KAFKA_MESH_ROUTER_HOME_PROPERTIES): ")
    assert said in told
    assert "hunter2" not in told


@pytest.mark.parametrize("wrong", ['{"sasl.password": "hunter2"', '["hunter2"]', '{"sasl.password": ["hunter2"]}'])
def test_what_is_no_object_of_texts_is_refused_without_its_content(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_MESH_ROUTER_HOME_PROPERTIES", wrong)
    with pytest.raises(SystemExit):
        load(RouterSettings, [])
    told = capsys.readouterr().err
    assert "home_properties" in told
    assert "hunter2" not in told


def test_the_child_process_is_told_of_the_registry_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_ROUTER_SCHEMA_REGISTRY_URL", "https://registry:8081/apis/ccompat/v7")
    monkeypatch.setenv("KAFKA_MESH_ROUTER_SCHEMA_REGISTRY_USER_INFO", "${file:/run/secrets/registry}")
    access = load(RouterSettings, []).registry
    assert access.arguments == (
        "--registry-url=https://registry:8081/apis/ccompat/v7",
        "--registry-user-info=${file:/run/secrets/registry}",
    )
    assert RegistryAccess.of_arguments(access.arguments) == access
    assert RegistryAccess().arguments == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [("URL", "registry:8081"), ("URL", "https://mesh:hunter2@registry:8081"), ("USER_INFO", "mesh:hunter2")],
)
def test_a_registry_is_an_address_and_its_secret_a_reference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], field: str, value: str
) -> None:
    monkeypatch.setenv(f"KAFKA_MESH_ROUTER_SCHEMA_REGISTRY_{field}", value)
    with pytest.raises(SystemExit):
        load(RouterSettings, [])
    said = capsys.readouterr().err
    assert f"schema_registry_{field.lower()}" in said
    assert "hunter2" not in said
