"""JSON with a JSON Schema: checked when it is written, JSON text in Kafka.

The library `jsonschema` checks values by the draft that the schema names (7 if the schema names none). The validator is
made once per schema; confluent-kafka's serializer wraps the same library in look-ups, rules and contexts for each
record. A `$ref` names one of the schemas that this schema refers to in the registry; nothing is loaded from the net.

A value from Kafka is not checked again: its producer did that, and the text goes into the answer unchanged.
"""

from typing import Any
from urllib.parse import urljoin

import jsonschema
import orjson
from jsonschema.exceptions import SchemaError as NoJsonSchemaError
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError, SchemaKind
from services.sidecar.formats import json_text
from services.sidecar.formats.linear_patterns import PatternError, check_patterns, with_linear_patterns
from services.sidecar.formats.misfit import LONGEST_SHOWN, pointer
from services.sidecar.formats.plain_json import Json

_JAVA_TYPES: dict[type, str] = {
    str: "String",
    bool: "Boolean",
    int: "Integer",
    float: "Double",
    type(None): "Null",
    dict: "JSONObject",
    list: "JSONArray",
}
"""The original's validator's names for the types of values that it finds."""
_EXPECTED_TYPES = {"object": "JSONObject", "array": "JSONArray"}


def codec_of(schema: RegisteredSchema, message: str | None = None) -> "JsonSchemaCodec":
    """The codec of a schema. SchemaError when it, or one that it refers to, is no JSON Schema."""
    content = _parsed(schema.text)
    base = str(content.get("$id", "")) if isinstance(content, dict) else ""
    registry: Registry[Any] = Registry()
    for name, referred in schema.references.items():
        if referred.kind is not SchemaKind.JSON:
            raise SchemaError(f"it refers to {name}, which is {referred.kind.value}, no JSON Schema")
        resource: Resource[Any] = Resource.from_contents(_parsed(referred.text), default_specification=DRAFT7)
        names = {
            name,
            urljoin(base, name),
            resource.id() or name,
        }  # the reference's name, the same name relative to the schema, and the `$id` of the referenced schema
        registry = registry.with_resources((one, resource) for one in names)
    draft = jsonschema.validators.validator_for(content, default=jsonschema.Draft7Validator)
    try:
        draft.check_schema(content)
    except NoJsonSchemaError as error:
        raise SchemaError(f"no JSON Schema: {pointer(error.absolute_path)}: {error.message:.{LONGEST_SHOWN}}") from None
    try:
        check_patterns([content, *(_parsed(referred.text) for referred in schema.references.values())])
    except PatternError as error:
        raise SchemaError(str(error)) from None
    except RecursionError:
        raise SchemaError("no JSON Schema: nested too deeply") from None
    return JsonSchemaCodec(with_linear_patterns(draft)(content, registry=registry))


def _parsed(text: str) -> Any:
    try:
        content = json_text.loads(text.encode())
    except (json_text.JsonError, UnicodeEncodeError) as error:
        raise SchemaError(f"no JSON Schema: {error}") from None
    if not isinstance(content, (dict, bool)):
        raise SchemaError("no JSON Schema: an object, or true or false, expected")
    return content


class JsonSchemaCodec:
    """Values of one schema."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._json = Json()

    def encode(self, value: Any) -> bytes:
        try:
            misfit = next(self._validator.iter_errors(value), None)
            if misfit is not None:  # only now is the search for the most telling error worth its time, as in an anyOf
                misfit = best_match(self._validator.iter_errors(value))
        except Unresolvable as error:
            raise FormatError(f"the schema refers to {error.ref}, which is not among its references") from None
        except RecursionError:
            raise FormatError("#: nested too deeply") from None
        if misfit is not None:
            raise FormatError(f"{pointer(misfit.absolute_path)}: {_reason(misfit)}")
        return self._json.encode(value)

    def decode(self, payload: bytes) -> orjson.Fragment:
        return self._json.decode(payload)


def _reason(error: ValidationError) -> str:
    """The reason: the original's text for a wrong type, else the library's text, which names the rule."""
    if error.validator == "type" and isinstance(error.validator_value, str):
        wanted = error.validator_value
        expected = _EXPECTED_TYPES.get(wanted, wanted.capitalize())
        return f"expected type: {expected}, found: {_JAVA_TYPES.get(type(error.instance), 'JSONObject')}"
    return error.message if len(error.message) <= 3 * LONGEST_SHOWN else f"{error.message[: 3 * LONGEST_SHOWN]}…"
