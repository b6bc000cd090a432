"""The gateway's settings: several networks, each told its own address, and what can't be is said at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from mesh.listeners import Certificates, Security
from mesh.user_files import Users, written
from services.gateway.listeners import Listener
from services.gateway.requests.nodes import Advertised, NodePorts
from services.gateway.settings import GatewaySettings, settings_of
from tests.fixtures.certificates import Authority


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    signed = authority.sign("gateway")
    return {"tls_certificate": signed.certificate, "tls_key": signed.key, "tls_client_ca": authority.certificate}


def test_each_listener_tells_its_clients_its_own_address() -> None:
    settings = GatewaySettings(
        listen=("0.0.0.0:19092", "0.0.0.0:9092"), advertised=("127.0.0.1:19092", "gateway:9092"), allow_insecure=True
    )
    assert settings.listeners == [
        Listener("0.0.0.0", 19092, Security.PLAINTEXT, Advertised("127.0.0.1", 19092), name="listener-1"),
        Listener("0.0.0.0", 9092, Security.PLAINTEXT, Advertised("gateway", 9092), name="listener-2"),
    ]


def test_a_listener_is_advertised_as_it_is_unless_told_otherwise(tls: dict[str, Any]) -> None:
    settings = GatewaySettings(listen=("127.0.0.1:5", "tls://127.0.0.1:6"), **tls)
    assert settings.listeners == [
        Listener("127.0.0.1", 5, Security.PLAINTEXT, Advertised("127.0.0.1", 5), name="listener-1"),
        Listener("127.0.0.1", 6, Security.SSL, Advertised("127.0.0.1", 6), (), Certificates.REQUIRED, "listener-2"),
    ]


def test_ports_and_hosts_of_nodes(monkeypatch: pytest.MonkeyPatch, tls: dict[str, Any]) -> None:
    monkeypatch.setenv("KAFKA_MESH_GATEWAY_LISTEN", "0.0.0.0:9092,tls://0.0.0.0:9093,0.0.0.0:9094")
    monkeypatch.setenv("KAFKA_MESH_GATEWAY_ADVERTISED", "inside:9092,{node}.kafka.example.com:9093,outside:9094")
    monkeypatch.setenv("KAFKA_MESH_GATEWAY_NODE_PORTS", "9100-9119,-,101=7001 102=7002")
    inside, secured, outside = GatewaySettings(allow_insecure=True, **tls).listeners
    assert inside.advertised == Advertised("inside", 9092, NodePorts(9100, 9119))
    assert list(inside.places)[:3] == [(9092, None), (9100, 100), (9101, 101)]
    assert secured.advertised == Advertised("{node}.kafka.example.com", 9093)
    assert list(outside.places) == [(9094, None), (7001, 101), (7002, 102)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"listen": "h:1"}, "everyone who reaches this address could read and write all topics"),
        ({"listen": "KERBEROS://h:1"}, "'KERBEROS' is no security of a listener; expected one of PLAINTEXT, SSL"),
        ({"listen": "SASL_PLAINTEXT://h:1"}, "SCRAM-SHA-256 and SCRAM-SHA-512 need users; set users_file"),
        (
            {"users_from_control": "true", "users_file": "/f", "router_addresses": "r:1"},
            "users come from control or from users_file; unset one of both",
        ),
        ({"users_from_control": "true"}, "routers send these users; set router_addresses"),
        ({"listen": "SASL_SSL://h:1"}, "set tls_certificate and tls_key"),
        ({"listen": "SASL_PLAINTEXT://h:1", "sasl_mechanisms": "GSSAPI"}, "expected some of SCRAM-SHA-512"),
        ({"listen": "SASL_PLAINTEXT://h:1", "sasl_mechanisms": "PLAIN PLAIN"}, "each once"),
        ({"listen": "SASL_PLAINTEXT://h:1", "sasl_mechanisms": "-,PLAIN"}, "has 2 parts for 1 of listen"),
        ({"listen": "SASL_PLAINTEXT://h:1", "sasl_mechanisms": "OAUTHBEARER"}, "OAUTHBEARER needs issuers"),
        ({"principal_mapping_rules": "RULE:a"}, "expected DEFAULT, or RULE"),
        ({"users_file": "/none", "listen": "SASL_PLAINTEXT://h:1"}, "/none can't be read: No such file"),
        ({"advertised": "a:1,b:1"}, "advertised names 2 addresses for 1 of listen"),
        ({"node_ports": "5-6,7-8"}, "node_ports names 2 addresses for 1 of listen"),
        ({"listen": "tls://h"}, "'h' is not an address"),
        ({"listen": "tls://h:1"}, "set tls_certificate and tls_key"),
        ({"tls_certificate": "/c", "tls_key": "/k"}, "are for TLS in listen: tls:// or SASL_SSL://"),
        ({"listen": "tls://h:1", "tls_certificate": "/none.pem", "tls_key": "/k"}, "/none.pem.*No such file"),
        ({"advertised": "{node}.example.com:1"}, "only TLS can tell apart: listen there with tls://, or .*node_ports"),
        ({"listen": "tls://h:1", "advertised": "{port}.example.com:1"}, r"\{node\} may stand there once"),
        ({"listen": "tls://h:1", "advertised": "{node}.x:1", "node_ports": "5-6"}, "one of them is enough"),
        ({"node_ports": "7"}, "expected FIRST-LAST, or NODE=PORT"),
        ({"node_ports": "9-7"}, "expected at most 1000 ports"),
        ({"node_ports": "1-2000"}, "expected at most 1000 ports"),
        ({"node_ports": "101=5 102"}, "expected FIRST-LAST"),
        ({"node_ports": "1=5"}, "nodes are 100 and the cluster's ordinal"),
        ({"node_ports": "101=5 102=5"}, "names a node or a port twice"),
        ({"listen": "h:1,h:2", "node_ports": "-,1-3"}, "name port 1 of h twice"),
        ({"listen": "h:5", "node_ports": "4-6"}, "name port 5 of h twice"),
        (
            {"home_bootstrap_servers": "h:1", "home_properties": {"security.protocoll": "ssl"}},
            "is no property of",
        ),
        ({"home_properties": {"security.protocol": "ssl"}}, "of use with home_bootstrap_servers alone"),
        ({"home_bootstrap_servers": "h:1", "traffic_topic": "orders"}, "'orders' is no topic of the mesh's own"),
        ({"audit_topics": "orders"}, "set home_bootstrap_servers"),
        ({"home_bootstrap_servers": "h:1", "audit_topics": "or ders"}, "'or ders' is no name of a topic"),
        ({"home_bootstrap_servers": "h:1", "audit_records_topic": "x"}, "call it mesh.audit-records"),
    ],
)
def test_what_can_not_be_is_said_at_the_start(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GatewaySettings(**wrong)


def test_files_that_do_not_belong_together_are_named(tls: dict[str, Any], tmp_path: Path) -> None:
    other = Authority(tmp_path).sign("other").key
    with pytest.raises(ValidationError, match=rf"tls_key {other}: not in PEM, do not belong together"):
        GatewaySettings(listen=("tls://h:1",), **(tls | {"tls_key": other}))


def test_a_password_is_not_shown(tls: dict[str, Any]) -> None:
    settings = GatewaySettings(listen=("tls://h:1",), tls_key_password=SecretStr("hunter2"), **tls)
    assert "hunter2" not in f"{settings!r} {settings.tls!r}"


def test_how_many_workers_there_are_is_said_by_an_option_or_a_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_MESH_GATEWAY_WORKERS", "2")
    assert settings_of([]).workers == 2
    assert settings_of(["--workers", "3"]).workers == 3
    for wrong in ("0", "65", "many"):
        with pytest.raises(SystemExit):
            settings_of(["--workers", wrong])
        assert "workers (KAFKA_MESH_GATEWAY_WORKERS): Input should be" in capsys.readouterr().err


def test_every_worker_has_a_name_of_its_own_that_is_not_too_long() -> None:
    assert GatewaySettings(name="g" * 98, workers=9).workers == 9
    with pytest.raises(ValidationError, match=r"with 10 workers the last one is 'g+-10': more than 100 characters"):
        GatewaySettings(name="g" * 98, workers=10)


def test_users_of_control_are_users_enough() -> None:
    listen = ("SASL_PLAINTEXT://127.0.0.1:1",)
    settings = GatewaySettings(listen=listen, users_from_control=True, router_addresses=("r:1",))
    assert settings.proofs.users_from_control


def test_listeners_with_different_policies(tls: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "users.yaml").write_bytes(written(Users()))
    settings = GatewaySettings(
        listen=("127.0.0.1:1", "SASL_SSL://h:2", "ssl://h:3", "SASL_PLAINTEXT://127.0.0.1:4"),
        sasl_mechanisms=("-", "plain scram-sha-512", "-", "SCRAM-SHA-256"),
        tls_client_auth=("-", "requested", "required", "-"),
        users_file=tmp_path / "users.yaml",
        **tls,
    )
    plain, login, certified, scram = settings.listeners
    assert [each.mechanisms for each in settings.listeners] == [(), ("PLAIN", "SCRAM-SHA-512"), (), ("SCRAM-SHA-256",)]
    assert [str(each) for each in (login, certified, scram)] == [
        "SASL_SSL://h:2",
        "tls://h:3",
        "SASL_PLAINTEXT://127.0.0.1:4",
    ]
    assert settings.tls_of(plain) is None
    requested, required = settings.tls_of(login), settings.tls_of(certified)
    assert requested is not None
    assert required is not None
    assert (requested.client_may_have_none, required.client_may_have_none) == (True, False)


def test_clients_that_log_in_by_tls_need_no_certificate_unless_the_settings_say_so(
    tls: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "users.yaml").write_bytes(written(Users()))
    settings = GatewaySettings(listen=("SASL_SSL://h:2",), users_file=tmp_path / "users.yaml", **tls)
    files = settings.tls_of(settings.listeners[0])
    assert files is not None
    assert files.client_ca is None
    assert settings.listeners[0].mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_what_anyone_on_the_way_could_read_needs_tls_unless_told(mechanism: str, tmp_path: Path) -> None:
    (tmp_path / "users.yaml").write_bytes(written(Users()))
    values: dict[str, Any] = {
        "listen": ("SASL_PLAINTEXT://127.0.0.1:2",),
        "sasl_mechanisms": (mechanism,),
        "users_file": tmp_path / "users.yaml",
        "token_issuers": ({"issuer": "i", "jwks_url": "https://i/keys", "audience": "kafka"},),
    }
    with pytest.raises(ValidationError, match=f"could read what clients send with {mechanism}; use SASL_SSL"):
        GatewaySettings(**values)
    assert GatewaySettings(allow_insecure=True, **values).listeners[0].mechanisms == (mechanism,)


@pytest.mark.parametrize("auth", ["none", "requested"])
def test_a_listener_by_tls_that_asks_nobody_who_they_are_is_an_open_door(auth: str, tls: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="could read and write all topics"):
        GatewaySettings(listen=("tls://h:1",), tls_client_auth=(auth,), **tls)


def test_certificates_need_an_authority(tls: dict[str, Any]) -> None:
    tls = {name: value for name, value in tls.items() if name != "tls_client_ca"}
    with pytest.raises(ValidationError, match="tls://h:1 asks for certificates; set the authorities"):
        GatewaySettings(listen=("tls://h:1",), tls_client_auth=("required",), **tls)


def test_revoked_certificates_are_those_of_an_authority(tls: dict[str, Any], tmp_path: Path) -> None:
    tls = {name: value for name, value in tls.items() if name != "tls_client_ca"}
    with pytest.raises(ValidationError, match="tls_client_crl revokes certificates of tls_client_ca"):
        GatewaySettings(listen=("tls://h:1",), tls_client_crl=tmp_path / "crl.pem", **tls)


def test_listeners_have_names() -> None:
    settings = GatewaySettings(listen=("plain=127.0.0.1:1", "127.0.0.1:2", "outside=PLAINTEXT://127.0.0.1:3"))
    assert [each.name for each in settings.listeners] == ["plain", "listener-2", "outside"]
    assert [str(each) for each in settings.listeners] == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("Plain=127.0.0.1:1", "is no name of a listener"),
        ("a=127.0.0.1:1,a=127.0.0.1:2", "names two listeners alike: a, a"),
    ],
)
def test_names_that_can_not_be(wrong: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GatewaySettings(listen=wrong)


def test_a_gateway_with_a_router_may_have_certificates_for_listeners_that_control_will_decide(
    tls: dict[str, Any],
) -> None:
    settings = GatewaySettings(router_addresses=("127.0.0.1:7071",), **tls)
    assert (settings.means.has_certificate, settings.means.has_client_ca) == (True, True)
    with pytest.raises(ValidationError, match="No such file"):
        GatewaySettings(router_addresses=("127.0.0.1:7071",), tls_certificate=Path("/none.pem"), tls_key=Path("/n.key"))
