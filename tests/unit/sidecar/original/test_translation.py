"""Folders of the original's files, and the settings that they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from services.sidecar.formats import Format
from services.sidecar.original.folder import SHIPPED
from services.sidecar.original.translation import Original, OriginalConfigError, original_config
from services.sidecar.settings import SidecarSettings
from tests.fixtures.certificates import Authority

LOCAL = {"kafka-producer.security.protocol": "PLAINTEXT", "kafka-consumer.security.protocol": "PLAINTEXT"}
HOOKS = "service.com.networknt.server.StartupHookProvider"
MESH = "com.networknt.mesh.kafka"
READER = {"keyFormat": "string", "valueFormat": "string"}
FORMATS = {f"kafka-{side}.{name}": "string" for side in ("producer", "consumer") for name in READER}

Read = Callable[..., Original]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What a folder says that has these values, and these other files."""

    def written(values: dict[str, Any], environment: dict[str, str] | None = None, **files: Any) -> Original:
        for name, content in {"values": {**LOCAL, **values}, **files}.items():
            (tmp_path / f"{name.replace('__', '-')}.yml").write_text(yaml.safe_dump(content))
        return original_config(tmp_path, {}, environment or {})

    return written


def test_a_folder_with_values_alone_has_all_that_the_original_ships(read: Read) -> None:
    settings = read({}).settings
    shown = {
        name: settings[name] for name in ("listen", "tls", "bootstrap_servers", "schema_registry_url", "value_format")
    }
    assert shown == {
        "listen": "127.0.0.1:8443",
        "tls": True,
        "bootstrap_servers": "localhost:9092",
        "schema_registry_url": "http://localhost:8081",
        "value_format": "jsonschema",
    }


def test_the_files_that_the_original_ships_can_be_a_folder_of_their_own(tmp_path: Path) -> None:
    """Written out, as people keep them: the contract's defaults, with the passwords from the environment."""
    for file in SHIPPED.glob("*.yml"):
        (tmp_path / file.name).write_text(file.read_text())
    hooks = [f"{MESH}.ProducerStartupHook", f"{MESH}.ActiveConsumerStartupHook"]
    values = {
        HOOKS: hooks,
        "security.enableVerifyJwt": False,
        "kafka-producer.username": "mesh",
        "kafka-consumer.username": "mesh",
    }
    (tmp_path / "values.yml").write_text(yaml.safe_dump(values))
    environment = {"KAFKA_PRODUCER_PASSWORD": "hunter2", "KAFKA_CONSUMER_PASSWORD": "hunter3"}
    found = original_config(tmp_path, {}, environment)
    assert found.settings["kafka_properties"] == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "mesh",
    }
    assert found.settings["producer_properties"] == {"sasl.password": "hunter2"}
    assert found.settings["consumer_properties"] == {"sasl.password": "hunter3"}
    assert found.settings["schema_registry_user_info"] == "mesh:hunter2"
    assert not [text for text in found.warnings if "not known" in text]


def test_settings_that_only_have_another_name(read: Read) -> None:
    found = read(
        {
            "kafka-consumer.requestMaxBytes": 204800,
            "kafka-consumer.requestTimeoutMs": 500,
            "kafka-consumer.instanceTimeoutMs": 600000,
            "kafka-consumer.maxConsumerThreads": 7,
            "kafka-consumer.useNoWrappingAvro": True,
            "kafka-consumer.serverId": "pod-7",
            "kafka-consumer.auto.offset.reset": "latest",
            "server.serviceId": "shop",
            "health.useJson": True,
            "health.timeout": 500,
            "logging.logStart": 1000,
            "chaos-monkey.enabled": True,
        }
    )
    expected = {
        "request_max_bytes": 204800, "request_timeout_ms": 500, "instance_timeout_ms": 600000, "max_instances": 7,
        "use_no_wrapping_avro": True, "name": "pod-7", "auto_offset_reset": "latest", "service_id": "shop",
        "health_json": True, "health_timeout_ms": 500, "log_content_default_ms": 1000, "chaos_monkey_enabled": True,
    }  # fmt: skip
    assert expected.items() <= found.settings.items()


def test_formats_of_producing_and_of_consuming_are_two(tmp_path: Path, read: Read) -> None:
    read(
        {
            "kafka-producer.keyFormat": "binary",
            "kafka-producer.valueFormat": "string",
            "kafka-consumer.keyFormat": "string",
            "kafka-consumer.valueFormat": "json",
        }
    )
    settings = SidecarSettings(original_config_dir=tmp_path)
    assert (settings.key_format, settings.value_format) == (Format.BINARY, Format.STRING)
    assert settings.instance_formats == (Format.STRING, Format.JSON)


def test_what_is_set_in_our_own_way_counts(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    read({**FORMATS, "kafka-producer.client.rack": "a", "kafka-consumer.client.rack": "a"})
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_LISTEN", "127.0.0.1:9999")
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_KAFKA_PROPERTIES", '{"client.rack": "b"}')
    settings = SidecarSettings(original_config_dir=tmp_path, tls=False)
    assert (settings.listen, settings.tls) == ("127.0.0.1:9999", False)
    shown = {name: value.get_secret_value() for name, value in settings.kafka_properties.items()}
    assert shown == {"client.rack": "b", "security.protocol": "PLAINTEXT"}


def test_secrets_do_not_show(tmp_path: Path, read: Read) -> None:
    read(
        {
            **FORMATS,
            "kafka-producer.security.protocol": "SASL_PLAINTEXT",
            "KAFKA_PRODUCER_PASSWORD": "hunter2",
            "kafka-producer.username": "mesh",
        }
    )
    settings = SidecarSettings(original_config_dir=tmp_path)
    assert settings.producer_properties["sasl.password"].get_secret_value() == "hunter2"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("hooks", "produces", "consumes"),
    [
        (None, None, None),
        ([f"{MESH}.ProducerStartupHook"], True, False),
        ([f"{MESH}.ActiveConsumerStartupHook"], False, True),
        (f"- {MESH}.ProducerStartupHook", True, False),
    ],
)
def test_hooks_switch_parts_on(read: Read, hooks: object, produces: bool | None, consumes: bool | None) -> None:
    settings = read({HOOKS: hooks} if hooks else {}).settings
    assert (settings.get("producer_enabled"), settings.get("consumers_enabled")) == (produces, consumes)


def test_the_reactive_consumer_is_switched_on_by_its_hook_and_has_our_names(read: Read) -> None:
    said = {
        "kafka-consumer.topic": "orders,payments", "kafka-consumer.group.id": "shop", "kafka-consumer.maxRetries": 5,
        "kafka-consumer.backendApiHost": "http://localhost:8080", "kafka-consumer.batchRollbackThreshold": 10,
        "kafka-consumer.instanceTimeoutMs": 20_000, "kafka-consumer.backendConnectionReset": True,
    }  # fmt: skip
    found = read({HOOKS: [f"{MESH}.ReactiveConsumerStartupHook"], **said})
    ours = {
        "reactive_topics": "orders,payments", "backend_url": "http://localhost:8080", "backend_max_retries": 5,
        "backend_path": "/kafka/records", "backend_rollback_threshold": 10, "backend_timeout_ms": 20_000,
        "instance_timeout_ms": 20_000, "backend_connection_reset": True, "reactive_max_concurrency": 50,
    }  # fmt: skip
    assert {name: found.settings[name] for name in ours} == ours
    assert not [text for text in found.warnings if "not used" in text]


@pytest.mark.parametrize("hooks", [None, [f"{MESH}.ProducerStartupHook"]])
def test_without_its_hook_nothing_is_read_as_shipped(read: Read, hooks: object) -> None:
    assert "reactive_topics" not in read({HOOKS: hooks} if hooks else {}).settings


def test_dead_letters_are_called_as_there(read: Read) -> None:
    settings = read({"kafka-consumer.deadLetterEnabled": False, "kafka-consumer.deadLetterTopicExt": ".dead"}).settings
    assert (settings["dead_letter_enabled"], settings["dead_letter_extension"]) == (False, ".dead")


def test_what_nobody_knows_is_said_by_name(read: Read) -> None:
    found = read(
        {"kafka-producer.keyFormatt": "json"}, own={"a": 1}, kafka__producer={"keyFormatt": "json", "properties": {}}
    )
    assert "values.yml: kafka-producer.keyFormatt is not known here, and not used" in found.warnings
    assert "own.yml is not known here, and not used" in found.warnings
    assert "kafka-producer.yml: keyFormatt is not known here, and not used" in found.warnings


def test_files_of_the_platform_need_no_word(read: Read) -> None:
    found = read({"handler.basePath": "/"}, handler={"enabled": True}, openapi={}, status={})
    assert not [text for text in found.warnings if "handler" in text or "openapi" in text or "status" in text]


def test_a_consumer_may_know_other_brokers(read: Read) -> None:
    found = read(
        {"kafka-producer.bootstrap.servers": "broker:29092", "kafka-consumer.bootstrap.servers": "broker:9092"}
    )
    assert found.settings["bootstrap_servers"] == "broker:29092"
    assert found.settings["consumer_properties"] == {"bootstrap.servers": "broker:9092"}


class TestTokens:
    """security.yml and client.yml."""

    KEYS: ClassVar = {"client.tokenKeyServerUrl": "https://issuer.example/", "client.tokenKeyUri": "/oauth2/N2/keys"}

    def test_where_the_keys_are(self, read: Read) -> None:
        found = read({**self.KEYS, "client.tokenKeyAudience": "shop", "security.clockSkewInSeconds": 30})
        issuer = {"jwks_url": "https://issuer.example/oauth2/N2/keys", "audience": "shop"}
        assert found.settings["token_issuers"] == [issuer]
        assert found.settings["token_clock_skew_s"] == 30

    def test_with_tokens_it_listens_where_it_is_told(self, read: Read) -> None:
        assert read(self.KEYS).settings["listen"] == "0.0.0.0:8443"

    def test_without_it_listens_here_and_says_so(self, read: Read) -> None:
        found = read({"security.enableVerifyJwt": False})
        assert found.settings["listen"] == "127.0.0.1:8443"
        assert [text for text in found.warnings if "listens on 127.0.0.1 only" in text]

    def test_or_everywhere_if_that_is_forced(self, tmp_path: Path, read: Read) -> None:
        read({})
        assert original_config(tmp_path, {"allow_insecure": True}, {}).settings["listen"] == "0.0.0.0:8443"

    @pytest.mark.parametrize("key", ["security.enableVerifyJwt", "openapi-security.enableVerifyJwt"])
    def test_switched_off_nobody_is_asked(self, read: Read, key: str) -> None:
        assert "token_issuers" not in read({**self.KEYS, key: False}).settings

    def test_asked_for_without_keys_is_refused(self, read: Read) -> None:
        with pytest.raises(OriginalConfigError, match="nobody says where the keys are"):
            read({"security.enableVerifyJwt": True})

    def test_what_cannot_be_switched_off_is_said(self, read: Read) -> None:
        found = read({**self.KEYS, "security.ignoreJwtExpiry": True, "security.skipPathPrefixes": "/producers"})
        told = [text.partition(" is not used")[0] for text in found.warnings]
        assert {"security.yml: ignoreJwtExpiry", "security.yml: skipPathPrefixes"} <= set(told)


class TestListener:
    """server.yml."""

    def test_plain_http(self, read: Read) -> None:
        found = read({"server.enableHttps": False, "server.enableHttp": True, "server.httpPort": 9080}).settings
        assert (found["listen"], found.get("tls")) == ("127.0.0.1:9080", None)

    def test_an_address_that_is_meant_stays(self, read: Read) -> None:
        assert read({"server.ip": "10.1.2.3"}).settings["listen"] == "10.1.2.3:8443"
        assert read({"server.ip": "::1"}).settings["listen"] == "[::1]:8443"

    def test_a_store_in_pem_is_served(self, tmp_path: Path, read: Read) -> None:
        signed = Authority(tmp_path / "ca").sign("server", password="password")
        (tmp_path / "server.keystore").write_text(signed.key.read_text() + signed.certificate.read_text())
        found = read({}).settings
        assert found["tls_certificate"] == found["tls_key"] == tmp_path / "server.keystore"
        assert found["tls_key_password"] == "password"

    def test_a_store_of_java_is_refused_unless_ours_is_set(self, tmp_path: Path, read: Read) -> None:
        (tmp_path / "server.keystore").write_bytes(bytes.fromhex("feedfeed00000002"))
        with pytest.raises(OriginalConfigError, match="is a Java store, and PEM is needed here; make it with: keytool"):
            read({})
        native = {"tls_certificate": "c.pem", "tls_key": "k.pem"}
        assert original_config(tmp_path, native, {}).settings["listen"] == "127.0.0.1:8443"

    def test_both_sides_show_certificates(self, tmp_path: Path, read: Read) -> None:
        (tmp_path / "server.truststore").write_text("-----BEGIN CERTIFICATE-----\n")
        found = read({"server.enableTwoWayTls": True}).settings
        assert found["tls_client_ca"] == tmp_path / "server.truststore"
        assert found["listen"] == "0.0.0.0:8443"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "is not YAML, line 1"), ("- a\n", "expected a mapping, got list"), ("a: ${b}\n", "is given neither")],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "server.yml").write_text(content)
    with pytest.raises(OriginalConfigError, match=sentence):
        original_config(tmp_path, {}, {})


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OriginalConfigError, match="is no folder"):
        original_config(tmp_path / "none", {}, {})
