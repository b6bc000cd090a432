"""JSON Schemas, ready to check values: faults name the place and the expectation, and nothing of the value.

Theory of operation
1. `jsonschema-rs` checks values by the draft that the schema names (7 if the schema names none). A `$ref` names one of
   the schemas that this schema refers to in the registry; nothing is loaded from the net.
2. Patterns run in an engine that never backtracks. It has no look-around and no back-references: a schema with such a
   pattern can't be used.
3. A value may be a secret, and so may the names of its properties. So the words of a fault come from the schema alone.
   A property that no schema names is shown as `*`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urljoin

import jsonschema_rs
import orjson

from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind

LONGEST_SHOWN: Final = 200
"""Characters of an expectation."""
_SHOWN: Final = ("types", "property", "limit", "options", "expected_value", "multiple_of", "pattern", "format")
"""The parts of a fault that jsonschema-rs takes from the schema."""
_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=2 * 1024 * 1024)
"""Bytes of one compiled pattern: `\\p{L}{1,50}` takes one MiB, and larger ones take more than 20 ms to compile."""


class JsonSchema:
    """One schema, compiled."""

    def __init__(self, schema: RegisteredSchema) -> None:
        """SchemaError: it can't be used."""
        content = _parsed(schema.text)
        others = dict(_named(schema, content))
        try:
            registry = jsonschema_rs.Registry(others.items(), retriever=_refused)
            make = jsonschema_rs.validator_for if _names_its_draft(content) else jsonschema_rs.Draft7Validator
            self._validator = make(content, registry=registry, offline=True, pattern_options=_PATTERNS, mask="it")
        except jsonschema_rs.ValidationError as error:
            place = "/".join(["#", *map(str, error.instance_path)])
            raise SchemaError(f"no JSON Schema: {place}: {error.message:.{LONGEST_SHOWN}}") from None
        except ValueError as error:
            raise SchemaError(f"no JSON Schema: {error!s:.{LONGEST_SHOWN}}") from None
        self._names = _Names([content, *others.values()])

    def fault(self, payload: bytes) -> str | None:
        """Why the value is not valid; None if it is."""
        try:
            value = orjson.loads(payload)
            if self._validator.is_valid(value):
                return None
            misfit = next(self._validator.iter_errors(value), None)
        except orjson.JSONDecodeError as error:
            return f"it is no JSON: {error}"
        except (ValueError, RecursionError):
            return "it is nested too deeply"
        except MemoryError:
            return "it takes too much memory"
        return None if misfit is None else _fault(misfit, self._names)


class _Names:
    """The names of properties that schemas name."""

    def __init__(self, schemas: Sequence[Any]) -> None:
        self._all = frozenset(_names_in(schemas))

    def pointer(self, path: Sequence[str | int]) -> str:
        """A JSON pointer as a fragment: `#/a/0`."""
        return "".join(["#", *(f"/{self._shown(part)}" for part in path)])

    def _shown(self, part: str | int) -> str:
        if isinstance(part, int):
            return str(part)
        return part.replace("~", "~0").replace("/", "~1") if part in self._all else "*"


def _names_in(schemas: Sequence[Any]) -> Iterator[str]:
    """All names in the schemas: which of them are properties, only their keywords say. They come from no value."""
    waiting = list(schemas)
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield from each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _fault(error: jsonschema_rs.ValidationError, names: _Names) -> str:
    said = error.kind.as_dict()
    expected = next((said[name] for name in _SHOWN if name in said), None)
    shown = "" if expected is None else f" {json.dumps(expected, default=str):.{LONGEST_SHOWN}}"
    return f"{names.pointer(error.instance_path)} does not keep to {error.kind.name}{shown}"


def _named(schema: RegisteredSchema, content: Any) -> Iterator[tuple[str, Any]]:
    """The schemas that the schema refers to, by the reference's name, that name relative to the schema, and `$id`."""
    base = _id_of(content)
    for name, referred in schema.references.items():
        if referred.kind is not SchemaKind.JSON:
            raise SchemaError(f"it refers to {name}, which is {referred.kind.value}, no JSON Schema")
        other = _parsed(referred.text)
        yield from ((one, other) for one in dict.fromkeys((name, urljoin(base, name), _id_of(other) or name)))


def _names_its_draft(content: Any) -> bool:
    return isinstance(content, dict) and "$schema" in content


def _id_of(content: Any) -> str:
    found = content.get("$id") if isinstance(content, dict) else None
    return found if isinstance(found, str) else ""


def _parsed(text: str) -> Any:
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"no JSON Schema: {error}") from None
    if not isinstance(content, (dict, bool)):
        raise SchemaError("no JSON Schema: an object, or true or false, expected")
    return content


def _refused(uri: str) -> Any:
    raise ValueError(f"{uri:.{LONGEST_SHOWN}} is not among its references")
