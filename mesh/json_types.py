"""What JSON calls the type of a value, for errors and for profiles."""

from __future__ import annotations

from collections.abc import Mapping


def type_name(value: object) -> str:
    """What other formats have beyond JSON (bytes, dates) is a string there."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case Mapping():
            return "object"
    return "string"
