"""The full name of the record that a schema describes, by its text, for subjects that are named after records.

An Avro schema has its full name, a JSON schema its title, and a Protobuf file its package with its first message.
"""

import re

import orjson

from mesh.schemas.schema import SchemaError, SchemaKind

_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
"""Comments and strings of Protobuf."""
_PACKAGE = re.compile(r"(?:^|[;}])\s*package\s+([\w.]+)\s*;")
_MESSAGE = re.compile(r"(?:^|[;{}])\s*message\s+(\w+)\s*\{")


def record_name(kind: SchemaKind, text: str, message: str | None = None) -> str:
    """The name. SchemaError if the schema has none. `message`: a Protobuf message other than the first."""
    match kind:
        case SchemaKind.AVRO:
            return _avro_name(text)
        case SchemaKind.JSON:
            return _title(text)
        case SchemaKind.PROTOBUF:
            return _message(text, message)


def _avro_name(text: str) -> str:
    schema = _json(text)
    if not isinstance(schema, dict) or not isinstance(name := schema.get("name"), str) or not name:
        raise SchemaError("the Avro schema is of no record, enum or fixed, so it has no name")
    namespace = schema.get("namespace")
    return name if "." in name or not isinstance(namespace, str) or not namespace else f"{namespace}.{name}"


def _title(text: str) -> str:
    schema = _json(text)
    if not isinstance(schema, dict) or not isinstance(title := schema.get("title"), str) or not title:
        raise SchemaError("the JSON schema has no title")
    return title


def _message(text: str, named: str | None) -> str:
    code = _NOT_CODE.sub(" ", text)
    found, package = _MESSAGE.search(code), _PACKAGE.search(code)
    if named is None and found is None:
        raise SchemaError("the Protobuf file has no message")
    name = named or (found[1] if found else "")
    return f"{package[1]}.{name}" if package and not name.startswith(f"{package[1]}.") else name


def _json(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
