"""What JSON calls the type of a value, for errors and for profiles."""

from __future__ import annotations

from collections.abc import Mapping


def type_name(value: object) -> str:
    """The JSON type of a value; types that JSON does not have (bytes, dates) are strings."""
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
