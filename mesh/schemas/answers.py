"""Answers of a registry with Confluent's API: one schema, and those that it refers to. No I/O: the caller asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from uuid import UUID

from mesh.schemas.framing import ID_LENGTH
from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind, UnknownSchemaError

MOST_REFERENCES = 100
"""Schemas that one schema may take in, at any depth."""
NOT_THERE = range(40401, 40409)
"""Error codes of a registry without such a subject, version or schema. Any other 404 means a wrong address."""
Ask = Callable[[str, str], Mapping[str, Any]]
"""The registry's answer at a path, with a text `schema`. The second text names what is asked for, for errors."""


Listed = Callable[[str, str], Sequence[Any]]
"""The registry's list at a path."""


def read_schema(prefix: bytes, ask: Ask) -> RegisteredSchema:
    """The schema that a prefix names. SchemaError: it can't be used. Errors of `ask` go on to the caller."""
    if len(prefix) == ID_LENGTH:
        schema_id, guid = int.from_bytes(prefix[1:]), ""
        answer = ask(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
    else:
        schema_id, guid = 0, str(UUID(bytes=prefix[1:]))
        answer = ask(f"/schemas/guids/{guid}", f"schema {guid}")
    return _read(f"schema {guid or schema_id}", answer, ask, id=schema_id, guid=guid)


def read_latest(subject: str, ask: Ask) -> RegisteredSchema:
    """The latest schema of a subject. As `read_schema`."""
    name = f"the latest version of subject {subject!r}"
    answer = ask(f"/subjects/{quote(subject, safe='')}/versions/latest", name)
    return _read(name, answer, ask, id=answer.get("id") or 0, subject=subject, version=answer.get("version"))


def _read(name: str, answer: Mapping[str, Any], ask: Ask, **of: Any) -> RegisteredSchema:
    references: dict[str, RegisteredSchema] = {}
    try:
        _take_in(answer, references, {}, ask)
        return RegisteredSchema(kind=_kind(answer), text=answer["schema"], references=references, **of)
    except (AttributeError, LookupError, RecursionError, TypeError) as error:
        raise SchemaError(f"the registry's answer for {name} can't be read: {type(error).__name__}") from None


def check_registered(prefix: bytes, subject: str, ask: Ask, listed: Listed) -> None:
    """UnknownSchemaError if the registry has no such schema, or not under this subject. Empty: any subject."""
    if len(prefix) != ID_LENGTH:
        guid = str(UUID(bytes=prefix[1:]))
        ask(f"/schemas/guids/{guid}", f"schema {guid}")
        if subject:
            raise UnknownSchemaError(f"a GUID does not show whether its schema is of subject {subject!r}: send an id")
        return
    schema_id = int.from_bytes(prefix[1:])
    versions = listed(f"/schemas/ids/{schema_id}/versions", f"schema {schema_id}")
    if subject and not any(isinstance(each, dict) and each.get("subject") == subject for each in versions):
        raise UnknownSchemaError(f"schema {schema_id} is none of subject {subject!r}")


def _take_in(
    answer: Mapping[str, Any], found: dict[str, RegisteredSchema], places: dict[str, tuple[str, int]], ask: Ask
) -> None:
    """Reads the schemas that the answer refers to into `found`, each after the schemas it refers to itself."""
    for reference in answer.get("references") or ():
        name, subject, version = reference["name"], reference["subject"], int(reference["version"])
        if name in places:
            if places[name] != (subject, version):
                raise SchemaError(f"it refers to two different schemas by the name {name}")
            if name not in found:
                raise SchemaError(f"schemas refer to each other in a circle: {name}")
            continue
        places[name] = subject, version
        if len(places) > MOST_REFERENCES:
            raise SchemaError(f"a schema refers to more than {MOST_REFERENCES} others")
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        referred = ask(path, f"version {version} of subject {subject!r}")
        _take_in(referred, found, places, ask)
        found[name] = RegisteredSchema(0, _kind(referred), referred["schema"])


def _kind(answer: Mapping[str, Any]) -> SchemaKind:
    given = answer.get("schemaType") or "AVRO"  # registries leave the type out for Avro
    try:
        return SchemaKind(given)
    except ValueError:
        known = ", ".join(each.value for each in SchemaKind)
        raise SchemaError(f"a schema of the registry is of type {given!s:.100} (known: {known})") from None
