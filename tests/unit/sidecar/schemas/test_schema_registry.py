"""The schema registry, asked over HTTP by confluent-kafka's client: what its answers and its silence become.

The registry is a small stand-in that answers what a test wants.
"""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mesh.schemas.schema import (
    Reference,
    RegistryUnavailableError,
    SchemaError,
    SchemaKind,
    UnknownSchemaError,
)
from services.sidecar.schemas.questions import ById
from services.sidecar.schemas.registry import RegistryAccess, SchemaRegistry
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.schemas import registry_access, schema_formats
from tests.fixtures.certificates import Authority
from tests.fixtures.small_registry import SmallRegistry

PATIENT_SECONDS = 30.0
STRING = {"schema": '"string"'}
FRUIT = {
    "subject": "fruit",
    "version": 2,
    "id": 7,
    "schemaType": "JSON",
    "schema": "{}",
    "references": [{"name": "color.json", "subject": "color", "version": 1}],
}


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    with SmallRegistry() as registry:
        yield registry


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def asking(url: str, clock: Clock | None = None, **access: object) -> SchemaRegistry:
    given = {"timeout_seconds": PATIENT_SECONDS, "attempts": 1, **access}
    return SchemaRegistry(RegistryAccess(url, **given), clock=clock or Clock())  # type: ignore[arg-type]


def test_schemas_come_with_what_the_registry_says_about_them(small: SmallRegistry) -> None:
    small.schemas[3], small.guids["g-1"], small.versions["fruit", 0] = STRING, STRING, FRUIT
    registry = asking(small.url)
    by_id, by_guid, latest = registry.by_id(3), registry.by_guid("g-1"), registry.latest("fruit")
    assert (by_id.id, by_id.kind, by_id.text) == (3, SchemaKind.AVRO, '"string"')
    assert (by_guid.kind, by_guid.guid) == (SchemaKind.AVRO, "g-1")
    assert (latest.id, latest.kind, latest.version) == (7, SchemaKind.JSON, 2)
    assert latest.references == (Reference("color.json", "color", 1),)


def test_the_client_below_keeps_nothing_so_that_nothing_grows(small: SmallRegistry) -> None:
    small.schemas[3] = STRING
    registry = asking(small.url)
    assert [registry.by_id(3).id, registry.by_id(3).id] == [3, 3]
    assert len(small.asked) == 2


@pytest.mark.parametrize(
    ("ask", "answer", "error", "reason"),
    [
        (lambda registry: registry.by_id(9), None, UnknownSchemaError, "no schema id 9"),
        (lambda registry: registry.latest("fruit"), None, UnknownSchemaError, "no subject fruit"),
        (lambda registry: registry.by_version("fruit", 9), None, UnknownSchemaError, "no version 9 of subject fruit"),
        (lambda registry: registry.by_id(9), 401, RegistryUnavailableError, "schema_registry_user_info"),
        (lambda registry: registry.by_id(9), 404, RegistryUnavailableError, "answers 404"),
        (lambda registry: registry.by_id(9), 500, RegistryUnavailableError, "answers 500"),
        (lambda registry: registry.by_id(9), 429, RegistryUnavailableError, "answers 429"),
    ],
)
def test_what_there_is_not_is_told_apart_from_a_registry_that_does_not_say(
    small: SmallRegistry,
    ask: Callable[[SchemaRegistry], object],
    answer: int | None,
    error: type[Exception],
    reason: str,
) -> None:
    if answer is not None:
        small.failures.append(answer)
    with pytest.raises(error, match=reason):
        ask(asking(small.url))


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (409, {"error_code": 40901, "message": "id was int"}, "not compatible with what subject fruit has .id was int"),
        (422, {"error_code": 42201, "message": "no schema"}, "refuses it for subject fruit .no schema, 42201"),
    ],
)
def test_a_schema_that_the_registry_does_not_take_is_refused_in_its_words(
    small: SmallRegistry, status: int, body: dict[str, object], reason: str
) -> None:
    small.posts["/subjects/fruit/versions"] = status, body
    with pytest.raises(SchemaError, match=reason):
        asking(small.url).register("fruit", SchemaKind.AVRO, '"int"', ())


def test_a_text_is_looked_up_and_registered_by_its_subject(small: SmallRegistry) -> None:
    small.posts["/subjects/fruit/versions"] = 200, {"id": 12}
    registry = asking(small.url)
    with pytest.raises(UnknownSchemaError, match="no such AVRO schema under subject fruit"):
        registry.look_up("fruit", SchemaKind.AVRO, '"int"', ())
    assert registry.register("fruit", SchemaKind.AVRO, '"int"', (Reference("n", "s", 1),)) == 12


def test_a_registry_that_stumbles_is_asked_again(small: SmallRegistry) -> None:
    small.schemas[3] = STRING
    small.failures.append(503)
    assert asking(small.url, attempts=2).by_id(3).id == 3


def test_a_registry_that_is_away_costs_one_question_for_a_moment(small: SmallRegistry) -> None:
    clock = Clock()
    registry = asking(small.url, clock)
    small.schemas[3] = STRING
    small.failures.append(500)
    for _ in range(3):
        with pytest.raises(RegistryUnavailableError, match="answers 500"):
            registry.by_id(3)
    assert len(small.asked) == 1
    clock.now = 1
    assert registry.by_id(3).id == 3


def test_a_registry_that_takes_questions_and_says_nothing_has_a_bound(small: SmallRegistry) -> None:
    small.silent.set()
    with pytest.raises(RegistryUnavailableError, match="does not answer"):
        asking(small.url, timeout_seconds=0.05).by_id(3)


def test_nobody_there() -> None:
    with pytest.raises(RegistryUnavailableError, match=r"http://127.0.0.1:1 does not answer \(ConnectError\)"):
        asking("http://127.0.0.1:1").by_id(3)


def test_a_password_is_a_reference_and_read_again_when_it_no_longer_does(small: SmallRegistry, tmp_path: Path) -> None:
    small.schemas[3], small.user_info = STRING, "sidecar:new"
    secret = tmp_path / "secret"
    secret.write_text("sidecar:old-hunter2\n", encoding="utf-8")
    clock = Clock()
    registry = asking(small.url, clock, user_info=f"${{file:{secret}}}")
    with pytest.raises(RegistryUnavailableError) as raised:
        registry.by_id(3)
    assert "hunter2" not in str(raised.value)
    secret.write_text("sidecar:new\n", encoding="utf-8")
    clock.now = 1
    assert registry.by_id(3).id == 3


def test_a_secret_that_is_not_there_is_named(small: SmallRegistry) -> None:
    with pytest.raises(RegistryUnavailableError, match="NO_SUCH_VARIABLE"):
        asking(small.url, token="${env:NO_SUCH_VARIABLE}").by_id(3)
    assert small.asked == []


def test_a_bearer_token_is_shown(small: SmallRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "hunter2")
    small.schemas[3], small.token = STRING, "hunter2"
    assert asking(small.url, token="${env:REGISTRY_TOKEN}").by_id(3).id == 3


def test_tls_both_ways(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.sign("registry"), authority.sign("sidecar", password="hunter2")
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    shown.verify_mode = ssl.CERT_REQUIRED
    shown.load_cert_chain(server.certificate, server.key)
    own: dict[str, Any] = {
        "certificate_location": str(client.certificate),
        "key_location": str(client.key),
        "key_password": "hunter2",
    }
    with SmallRegistry(schemas={3: STRING}, tls=shown) as registry:
        assert asking(registry.url, ca_location=str(authority.certificate), **own).by_id(3).id == 3
        with pytest.raises(RegistryUnavailableError, match="does not answer"):
            asking(registry.url, **own).by_id(3)


def test_a_certificate_that_is_not_there_is_no_surprise(small: SmallRegistry) -> None:
    with pytest.raises(RegistryUnavailableError, match="cannot be asked"):
        asking(small.url, ca_location="/nowhere/ca.pem").by_id(3)


def test_all_of_it_is_settings(small: SmallRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_SCHEMA_REGISTRY_URL", small.url)
    monkeypatch.setenv("KAFKA_MESH_SIDECAR_SCHEMA_REGISTRY_USER_INFO", "${env:REGISTRY_LOGIN}")
    monkeypatch.setenv("REGISTRY_LOGIN", "sidecar:hunter2")
    small.schemas[3], small.user_info = STRING, "sidecar:hunter2"
    formats = schema_formats(SidecarSettings(schema_registry_timeout_ms=30_000))
    assert formats is not None
    assert formats.find_writer(ById(3), None).encoder()("k") == b"\x00\x00\x00\x00\x03\x02k"


def test_each_setting_has_its_place() -> None:
    names = {
        "ca_location": "ca.pem",
        "certificate_location": "own.pem",
        "key_location": "own.key",
        "key_password": "${env:KEY_PASSWORD}",
        "token": "${file:/token}",
        "cluster": "lsrc-1",
    }
    given = {f"schema_registry_{name}": value for name, value in names.items()}
    settings = SidecarSettings.model_validate({"schema_registry_url": "https://registry.example", **given})
    access = registry_access(settings)
    assert {name: getattr(access, name) for name in names} == names


def test_no_address_no_formats() -> None:
    assert schema_formats(SidecarSettings()) is None
