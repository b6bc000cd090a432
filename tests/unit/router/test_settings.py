"""What the router is told of its home cluster, checked at the start."""

from __future__ import annotations

import json

import pytest

from mesh.connection_security import ConnectionSecurity, Mechanism, PasswordLogin
from mesh.settings import load
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
