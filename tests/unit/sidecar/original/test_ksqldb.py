"""The original's kafka-ksqldb.yml, and the settings that it stands for."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.sidecar.ksqldb.rows import RowFormat
from services.sidecar.original.translation import Original, OriginalConfigError, original_config
from services.sidecar.settings import SidecarSettings

HOOKS = "service.com.networknt.server.StartupHookProvider"
MESH = "com.networknt.mesh.kafka"
LOCAL = {
    "kafka-producer.security.protocol": "PLAINTEXT",
    "kafka-consumer.security.protocol": "PLAINTEXT",
    "security.enableVerifyJwt": False,
}
FORMATS = {
    f"kafka-{side}.{name}": "string" for side in ("producer", "consumer") for name in ("keyFormat", "valueFormat")
}
ACTIVE, REACTIVE = f"{MESH}.KsqldbActiveConsumerStartupHook", f"{MESH}.KsqldbReactiveConsumerStartupHook"


def read(folder: Path, values: dict[str, Any], environment: dict[str, str] | None = None, **files: Any) -> Original:
    for name, content in {"values": {**LOCAL, **values}, **files}.items():
        (folder / f"{name.replace('__', '-')}.yml").write_text(yaml.safe_dump(content))
    return original_config(folder, {}, environment or {})


def ksqldb(found: Original) -> dict[str, Any]:
    return {name: value for name, value in found.settings.items() if name.startswith("ksqldb")}


def test_nobody_asks_ksqldb_unless_somebody_says_so(tmp_path: Path) -> None:
    assert ksqldb(read(tmp_path, {})) == {}
    assert ksqldb(read(tmp_path, {HOOKS: [f"{MESH}.ProducerStartupHook"], "kafka-ksqldb.ksqldbHost": "k"})) == {}


def test_the_hook_of_queries_that_are_asked_is_enough_for_them(tmp_path: Path) -> None:
    assert ksqldb(read(tmp_path, {HOOKS: [ACTIVE]})) == {
        "ksqldb_url": "http://localhost:8088",
        "ksqldb_active_enabled": True,
    }


def test_the_query_that_is_followed_has_its_streams_tables_and_backend(tmp_path: Path) -> None:
    values = {
        HOOKS: [REACTIVE],
        "kafka-ksqldb.ksqldbHost": "ksql",
        "kafka-ksqldb.ksqldbPort": 8443,
        "kafka-ksqldb.query": "SELECT * FROM S EMIT CHANGES",
        "kafka-ksqldb.auto.offset.reset": "latest",
        "kafka-ksqldb.backendUrl": "http://localhost:8081",
        "kafka-ksqldb.backendPath": "/rows",
        **FORMATS,
    }
    found = read(tmp_path, values)
    settings = SidecarSettings.model_validate({**found.settings, "control_addresses": (), "state_dir": tmp_path})
    assert settings.ksqldb_url == "http://ksql:8443"
    assert not settings.ksqldb_active_enabled
    query = settings.followed_query()
    assert (query.sql, query.properties) == ("SELECT * FROM S EMIT CHANGES;", {"auto.offset.reset": "latest"})
    assert (query.row_format, query.batch_rows) == (RowFormat.ARRAY, 1)
    assert (settings.ksqldb_backend_url, settings.ksqldb_backend_path) == ("http://localhost:8081", "/rows")
    assert not any("ksqldb" in warning for warning in found.warnings)


def test_statements_of_a_file_of_its_own_are_run_and_strange_names_are_told(tmp_path: Path) -> None:
    own = {
        "ksqldbHost": "ksql", "ksqldbPort": 8088, "query": "SELECT 1 EMIT CHANGES;", "color": "red",
        "initialStreams": ["CREATE STREAM S;"], "initialTables": ["CREATE TABLE T;"],
        "backendUrl": "http://localhost:1", "backendPath": "/rows",
    }  # fmt: skip
    found = read(tmp_path, {HOOKS: [ACTIVE, REACTIVE]}, kafka__ksqldb=own)
    assert (found.settings["ksqldb_initial_streams"], found.settings["ksqldb_initial_tables"]) == (
        ["CREATE STREAM S;"], ["CREATE TABLE T;"],
    )  # fmt: skip
    assert "kafka-ksqldb.yml: color is not known here, and not used" in found.warnings


def test_with_tls_the_password_comes_from_the_environment_and_the_store_has_to_be_pem(tmp_path: Path) -> None:
    store = tmp_path / "trust.pem"
    store.write_text("-----BEGIN CERTIFICATE-----")
    values = {
        HOOKS: [ACTIVE], "kafka-ksqldb.useTls": True, "kafka-ksqldb.trustStore": str(store),
        "kafka-ksqldb.username": "me",
    }  # fmt: skip
    found = ksqldb(read(tmp_path, values, {"KAFKA_KSQLDB_PASSWORD": "secret"}))
    assert found["ksqldb_url"] == "https://localhost:8088"
    assert (found["ksqldb_user_info"], found["ksqldb_ca_location"]) == ("me:secret", store)
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(OriginalConfigError, match=r"kafka-ksqldb\.yml: trustStore: .* is a Java store"):
        read(tmp_path, values)
