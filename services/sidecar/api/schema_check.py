"""Checks a JSON value against a schema of the contract, and reports all violations at once.

Most requests are in the plain form: no null members, no aliases, whole numbers written as such. A strict twin of the
schema accepts only this form; a value that fits the twin is taken unchanged, at 0.1 us a record. A value that fits only
the schema itself is first rewritten to the plain form, so the code behind sees one form. A value that fits neither is
refused, in the words of the original's validator and with JSON pointers.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs

from mesh.json_types import type_name
from services.sidecar.faults import Violation, refused

MAX_VIOLATIONS = 100
"""In one answer: a body of nonsense must not become an answer ten times its size."""

Schema = Mapping[str, Any]
Rewrite = Callable[[Any], Any]
_ANNOTATIONS = {"description", "examples", "example", "title", "default", "deprecated"}


class SchemaCheck:
    """One schema of the contract, compiled. `components` has the targets of its references."""

    def __init__(self, schema: Schema, components: Schema) -> None:
        self._schema: Schema = inlined(schema, components)
        self._full = jsonschema_rs.Draft202012Validator(self._schema)
        # the only draft in which 5.0 is no integer
        self._strict = jsonschema_rs.Draft4Validator(_strict(self._schema))
        self._rewrite = _rewrite(self._schema) or (lambda value: value)

    @property
    def schema(self) -> Schema:
        """Without references."""
        return self._schema

    def plain(self, value: Any, pointer: str = "") -> Any:
        """The value in the plain way. Fault with all violations when it does not fit; `pointer` is where it stands."""
        if self._strict.is_valid(value):
            return value
        if self._full.is_valid(value):
            return self._rewrite(value)
        raise refused(self.violations(value, pointer))

    def violations(self, value: Any, pointer: str = "") -> list[Violation]:
        """The violations of the value; empty if it fits."""
        found = (each for error in self._full.iter_errors(value) for each in _violations(error, self._schema, pointer))
        return list(islice(found, MAX_VIOLATIONS))


def inlined(schema: Any, components: Schema) -> Any:
    """A schema with the referenced parts in place of the references. A member beside a reference wins."""
    if isinstance(schema, list):
        return [inlined(one, components) for one in schema]
    if not isinstance(schema, dict):
        return schema
    resolved = {name: inlined(value, components) for name, value in schema.items() if name != "$ref"}
    if reference := schema.get("$ref"):
        target: Any = {"components": components}
        for segment in reference.removeprefix("#/").split("/"):
            target = target[segment]
        return _merged(inlined(target, components), resolved)
    return resolved


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    if "properties" in below and "properties" in above:
        merged["properties"] = {**below["properties"], **above["properties"]}
    return merged


def _strict(schema: Any) -> Any:
    """The twin: neither aliases nor nulls; in words that Draft 4 has."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema if one != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    twin: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties":
            twin[name] = {key: _strict(one) for key, one in value.items() if "x-alias-of" not in one}
        elif name == "type" and isinstance(value, list):
            twin[name] = [one for one in value if one != "null"]
        elif name == "enum":
            twin[name] = [one for one in value if one is not None]
        elif name == "const":
            twin["enum"] = [value]
        elif name == "dependentRequired":
            twin["dependencies"] = value
        elif name == "propertyNames":
            twin["patternProperties"] = {value["pattern"]: _strict(schema.get("additionalProperties", {}))}
        elif name not in _ANNOTATIONS and not name.startswith("x-"):
            twin[name] = _strict(value)
    if "patternProperties" in twin:
        twin["additionalProperties"] = False
    return twin


def _rewrite(schema: Schema) -> Rewrite | None:
    """The rewrite that brings a fitting value to the plain form; None if there is nothing to rewrite."""
    if "integer" in types_of(schema):
        return _whole
    if "properties" in schema:
        return _Members(schema["properties"])
    if (items := schema.get("items")) and (rewrite := _rewrite(items)):
        return _each_item(rewrite)
    if isinstance(others := schema.get("additionalProperties"), Mapping) and (rewrite := _rewrite(others)):
        return _each_member(rewrite)
    return None


def _each_item(rewrite: Rewrite) -> Rewrite:
    return lambda value: value if value is None else [rewrite(one) for one in value]


def _each_member(rewrite: Rewrite) -> Rewrite:
    return lambda value: {name: rewrite(one) for name, one in value.items()}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) else value


class _Members:
    """Rewrites an object: its members by their first names, without nulls."""

    def __init__(self, properties: Schema) -> None:
        self._first_names = {name: one.get("x-alias-of", name) for name, one in properties.items()}
        self._rewrites = {name: rewrite for name, one in properties.items() if (rewrite := _rewrite(one))}

    def __call__(self, value: Any) -> Any:
        plain: dict[str, Any] = {}
        for name, given in value.items():
            first_name = self._first_names.get(name, name)
            if given is not None and (first_name == name or value.get(first_name) is None):
                rewrite = self._rewrites.get(name)
                plain[first_name] = rewrite(given) if rewrite else given
        return plain


def types_of(schema: Schema) -> set[str]:
    """The JSON types that a value may have; empty if the schema names none."""
    given = schema.get("type", [])
    types = {given} if isinstance(given, str) else set(given)
    for branch in schema.get("anyOf", ()):
        types |= types_of(branch)
    return types


def _violations(error: Any, schema: Schema, pointer: str) -> Iterator[Violation]:
    """The violations that the caller reads for one error of the validator: one for each unknown member, else one."""
    kind = error.kind.as_dict()
    place = pointer + "".join(f"/{_escaped(segment)}" for segment in error.instance_path)
    broken = _at(schema, error.schema_path[:-1])
    match error.kind.name:
        case "additionalProperties" | "unevaluatedProperties":
            known = ", ".join(name for name, one in broken.get("properties", {}).items() if "x-alias-of" not in one)
            for name in kind["unexpected"]:
                yield Violation(f"{place}/{_escaped(name)}", f"unknown member (known: {known})")
        case "required":
            yield Violation(place, f"required property '{kind['property']}' not found")
        case "type":
            yield Violation(place, f"{type_name(error.instance)} found, {_expected(broken)} expected")
        case "minimum":
            yield Violation(place, f"must have a minimum value of {broken['minimum']}")
        case "maximum":
            yield Violation(place, f"must have a maximum value of {broken['maximum']}")
        case "anyOf" if meant := _meant(error):
            for one in meant:
                yield from _violations(one, schema, pointer)
        case _:
            yield Violation(place, str(broken.get("x-refusal", error.message)))


def _meant(error: Any) -> list[Any]:
    """The errors of the branch of a choice that wants the value's type, object or list; empty if there is none."""
    if not isinstance(error.instance, (dict, list)):
        return []
    branches: list[list[Any]] = error.kind.as_dict()["context"]
    here = error.instance_path
    return next((found for found in branches if not any(_is_other_type(one, here) for one in found)), [])


def _is_other_type(error: Any, place: list[Any]) -> bool:
    return bool(error.kind.name == "type" and error.instance_path == place)


def _at(schema: Any, path: list[Any]) -> Schema:
    for segment in path:
        schema = schema[segment]
    return schema if isinstance(schema, dict) else {}


def _expected(schema: Schema) -> str:
    given = schema.get("type", "")
    types = [given] if isinstance(given, str) else [one for one in given if one != "null"]
    return " or ".join(types)


def _escaped(segment: object) -> str:
    return str(segment).replace("~", "~0").replace("/", "~1")
