"""Kafka's own message specifications, read at run time from the jars of kafka-clients.

Each jar of kafka-clients carries one JSON file for each request and response, with all versions that this Kafka
speaks. The replayer has no tables of its own: an API of tomorrow needs a jar of tomorrow.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMENT = re.compile(r"^\s*//.*$|\s//[^\"\n]*$", re.MULTILINE)
FOLDER = "common/message/"
API_VERSIONS = 18


class SpecificationError(Exception):
    """A jar without specifications, or a message that none of them describes."""


@dataclass(frozen=True, slots=True)
class Versions:
    """As specifications write them: `none`, `3`, `0-2`, `4+`."""

    first: int
    last: int

    @classmethod
    def of(cls, text: str) -> Versions:
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), 1 << 15)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    kind: str
    """The type of the field, or of one element of an array: `int32`, `string`, ..., or the name of a struct."""
    is_array: bool
    parts: tuple[Field, ...]
    """The fields of a struct."""
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: object
    entity: str
    """What Kafka says the value names, `brokerId` for example; or empty."""
    is_key: bool
    """It names the element of an array that it is part of."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageSpec:
    name: str
    api_key: int
    is_request: bool
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    @property
    def api(self) -> str:
        return self.name.removesuffix("Request").removesuffix("Response")


class Specifications:
    """The specifications in one or more jars. If two jars describe one version, the first jar counts."""

    def __init__(self, jars: Iterable[Path]) -> None:
        self._by_key: dict[tuple[int, bool], list[MessageSpec]] = {}
        for jar in jars:
            self._read(jar)
        if not self._by_key:
            raise SpecificationError("no jar of kafka-clients was given: name one with --specifications")

    def find(self, api_key: int, version: int, *, is_request: bool) -> MessageSpec | None:
        """None: no jar describes this version."""
        for spec in self._by_key.get((api_key, is_request), ()):
            if version in spec.versions:
                return spec
        return None

    def name(self, api_key: int) -> str:
        specs = self._by_key.get((api_key, True))
        return specs[0].api if specs else f"API {api_key}"

    def is_flexible(self, api_key: int, version: int) -> bool:
        """Also for versions that no jar describes any more: flexible ones come last."""
        return any(version in spec.flexible for spec in self._by_key.get((api_key, True), ()))

    def messages(self) -> Iterable[MessageSpec]:
        return (spec for specs in self._by_key.values() for spec in specs)

    def _read(self, jar: Path) -> None:
        with zipfile.ZipFile(jar) as archive:
            names = [name for name in archive.namelist() if name.startswith(FOLDER) and name.endswith(".json")]
            if not names:
                raise SpecificationError(f"{jar} has no {FOLDER}*.json: a jar of kafka-clients is wanted")
            for name in names:
                spec = _message(json.loads(COMMENT.sub("", archive.read(name).decode())))
                if spec is not None:
                    self._by_key.setdefault((spec.api_key, spec.is_request), []).append(spec)


def _message(text: Mapping[str, Any]) -> MessageSpec | None:
    if "apiKey" not in text or text["validVersions"] == "none":
        return None
    structs = {part["name"]: part["fields"] for part in text.get("commonStructs", ())}
    return MessageSpec(
        text["name"],
        text["apiKey"],
        text["type"] == "request",
        Versions.of(text["validVersions"]),
        Versions.of(text["flexibleVersions"]),
        _fields(text["fields"], structs),
    )


def _fields(fields: Iterable[Mapping[str, Any]], structs: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(field, structs) for field in fields)


def _field(text: Mapping[str, Any], structs: Mapping[str, Any]) -> Field:
    is_array = text["type"].startswith("[]")
    kind = text["type"].removeprefix("[]")
    parts = text.get("fields") or structs.get(kind, ())
    return Field(
        text["name"],
        kind,
        is_array,
        _fields(parts, structs),
        Versions.of(text["versions"]),
        Versions.of(text.get("nullableVersions", "none")),
        Versions.of(text.get("taggedVersions", "none")),
        int(text.get("tag", -1)),
        _default(text.get("default"), kind, is_array),
        text.get("entityType", ""),
        bool(text.get("mapKey", False)),
    )


def _default(given: object, kind: str, is_array: bool) -> object:
    if given == "null":
        return None
    if is_array:
        return []
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "string":
        return given or ""
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "float64":
        return float(str(given or 0))
    if kind[0].isupper():
        return {}
    return int(str(given or 0), 0)
