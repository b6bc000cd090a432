"""Our schemas are Kafka's: compared field by field, version by version, with the specifications that every
`kafka-clients` jar carries. 4.4 has the newest versions, 3.9 the oldest, which 4.0 dropped.
"""

import json
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.jars import cache_folder
from services.gateway.wire.apis import ApiKey, flexible_since, request_header_version, response_header_version
from services.gateway.wire.schema import NO_UUID, FieldSpec, Kind, MessageSpec, Named, Struct, Type, fields_of, messages
from tests.unit.gateway.wire.strategies import every_version, message_id

Row = tuple[str, str, bool, bool, int | None, object, object]
"""name, type, nullable, ignorable, tag, default, rows of the struct"""

THEIR_NAMES = {"EntryResult": "EntryData", "RequestedTopic": "TopicData", "RequestedPartition": "PartitionData"}
"""Where Kafka calls two structs of one API the same."""
NAMED_BEFORE = {"generation_id_or_member_epoch": "generation_id"}
"""Fields that Kafka has given another name since."""
NEWEST = "4.4.0"
OLDEST = "3.9.1"


@dataclass(frozen=True, slots=True)
class Kafka:
    version: str
    messages: dict[str, dict[str, Any]]


def jar_of(version: str) -> Path | None:
    """The jar in Maven's local repository or in the mesh's cache of Kafka jars."""
    caches = [
        Path(os.environ.get("MAVEN_REPO_LOCAL") or Path.home() / ".m2" / "repository")
        / "org/apache/kafka/kafka-clients",
        cache_folder(),
    ]
    for cache in caches:
        for found in sorted(cache.rglob(f"kafka-clients-{version}.jar")) if cache.is_dir() else []:
            return found
    return None


def specifications(jar: Path) -> dict[str, dict[str, Any]]:
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$|\s//[^\"\n]*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                spec = json.loads(text)
                found[spec["name"]] = spec
    return found


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    version: str = request.param
    jar = jar_of(version)
    if jar is not None:
        return Kafka(version, specifications(jar))
    reason = f"no kafka-clients-{version}.jar in Maven's repository or the mesh's cache"
    if os.environ.get("CI") and version == NEWEST:
        pytest.fail(reason)
    pytest.skip(reason)


def in_range(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    low, _, high = versions.partition("-")
    return int(low) <= version <= int(high or low)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def kafka_rows(fields: list[dict[str, Any]], commons: dict[str, Any], version: int) -> Iterator[Row]:
    for field in fields:
        ignorable = str(field.get("ignorable", False)).lower() == "true"
        if not in_range(field["versions"], version):
            continue
        kind = field["type"]
        element = kind.removeprefix("[]")
        parts = field.get("fields") or commons.get(element)
        default = kafka_default(field, kind)
        yield (
            snake(field["name"]),
            kind.replace("records", "bytes"),
            in_range(field.get("nullableVersions", "none"), version),
            ignorable,
            field["tag"] if in_range(field.get("taggedVersions", "none"), version) else None,
            default,
            tuple(kafka_rows(parts, commons, version)) if parts else (),
        )


def kafka_default(field: dict[str, Any], kind: str) -> object:
    given = field.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "string":
        return given or ""
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return NO_UUID
    if kind[0].isupper():
        return kind
    return int(str(given or 0), 0)


def our_rows(cls: type[Struct], version: int) -> Iterator[Row]:
    for name, spec, default in fields_of(cls):
        if spec.present(version):
            value = default()
            yield (
                name,
                our_type(spec),
                spec.nullable(version),
                spec.ignorable,
                spec.tag,
                type(value).__name__ if isinstance(value, Struct) else value,
                tuple(our_rows(spec.struct, version)) if spec.struct else (),
            )


def layout(row: Row) -> tuple[object, ...]:
    name, kind, nullable, _, tag, default, parts = row
    assert isinstance(parts, tuple)
    return NAMED_BEFORE.get(name, name), kind, nullable, tag, default, tuple(layout(part) for part in parts)


def our_type(spec: FieldSpec) -> str:
    name = spec.struct.__name__ if spec.struct else spec.kind.name.lower()
    name = THEIR_NAMES.get(name, name)
    return f"[]{name}" if spec.repeated else name


def their_names(fields: list[dict[str, Any]], commons: dict[str, Any], of: Named) -> Iterator[str]:
    for field in fields:
        if field.get("entityType") == of.value:
            yield snake(field["name"])
        element = field["type"].removeprefix("[]")
        for name in their_names(field.get("fields") or commons.get(element, []), commons, of):
            yield f"{snake(field['name'])}.{name}"


def our_names(cls: type[Struct], of: Named) -> Iterator[str]:
    for name, spec, _ in fields_of(cls):
        if spec.names is of:
            yield name
        for inner in our_names(spec.struct, of) if spec.struct else ():
            yield f"{name}.{inner}"


@pytest.mark.parametrize("spec", [spec for spec in messages() if spec.api_key is not None], ids=message_id)
@pytest.mark.parametrize("of", Named)
def test_we_know_every_field_that_names_something_of_clients(kafka: Kafka, spec: MessageSpec, of: Named) -> None:
    """Where a cluster, or a tenant, has other names, all of them are translated."""
    theirs = kafka.messages.get(spec.cls.__name__)
    if theirs is None or kafka.version != NEWEST:
        return
    commons = {part["name"]: part["fields"] for part in theirs.get("commonStructs", [])}
    assert set(their_names(theirs.get("fields", []), commons, of)) <= set(our_names(spec.cls, of))


@pytest.mark.parametrize("spec", messages(), ids=message_id)
def test_fields_are_those_of_the_specification(kafka: Kafka, spec: MessageSpec) -> None:
    if kafka.version == OLDEST and spec.cls.__name__ not in kafka.messages:
        return  # an API younger than it
    theirs = kafka.messages[spec.cls.__name__]
    commons = {part["name"]: part["fields"] for part in theirs.get("commonStructs", [])}
    assert spec.api_key == theirs.get("apiKey")
    for version in range(spec.versions[0], spec.versions[1] + 1):
        if not in_range(theirs["validVersions"], version):
            continue  # the other Kafka has it: see the next test
        assert spec.is_flexible(version) == in_range(theirs["flexibleVersions"], version)
        ours = list(our_rows(spec.cls, version))
        rows = list(kafka_rows(theirs["fields"], commons, version))
        if kafka.version == NEWEST:
            assert ours == rows, f"v{version}"
        else:  # the layout is the same for ever; what is ignorable changed when topic ids came
            assert [layout(row) for row in ours] == [layout(row) for row in rows], f"v{version}"


def test_every_version_is_covered_by_one_of_the_specifications() -> None:
    jars = [jar_of(version) for version in (NEWEST, OLDEST)]
    if None in jars:
        pytest.skip("needs kafka-clients of both 4.4 and 3.9")
    specs = [specifications(jar) for jar in jars if jar]

    def known(spec: MessageSpec, version: int) -> bool:
        theirs = [kafka[spec.cls.__name__]["validVersions"] for kafka in specs if spec.cls.__name__ in kafka]
        return any(in_range(versions, version) for versions in theirs)

    missing = [f"{spec.cls.__name__} v{version}" for spec, version in every_version() if not known(spec, version)]
    assert not missing


def test_the_table_of_keys_knows_names_and_flexible_versions(kafka: Kafka) -> None:
    requests = [
        spec for spec in kafka.messages.values() if spec["type"] == "request" and spec["validVersions"] != "none"
    ]
    assert requests
    for spec in requests:
        key = ApiKey(spec["apiKey"])
        if kafka.version == NEWEST:
            assert key.label == spec["name"].removesuffix("Request")
        first = spec["flexibleVersions"].rstrip("+")
        assert flexible_since(key) == (None if first == "none" else int(first)), key


def test_headers_follow_flexibility_with_one_exception() -> None:
    assert request_header_version(ApiKey.METADATA, 8) == 1
    assert request_header_version(ApiKey.METADATA, 9) == 2
    assert response_header_version(ApiKey.METADATA, 9) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert response_header_version(ApiKey.API_VERSIONS, 3) == 0, "read before the client knows the broker"
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0


def test_schemas_and_the_table_of_keys_agree() -> None:
    for spec, version in every_version():
        if spec.api_key is not None:
            since = flexible_since(spec.api_key)
            assert spec.is_flexible(version) == (since is not None and version >= since)
            suffix = "Request" if spec.kind is Kind.REQUEST else "Response"
            assert spec.cls.__name__ == ApiKey(spec.api_key).label + suffix
    assert Type.UUID.fixed
