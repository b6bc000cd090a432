"""A CloudEvent of version 1.0, in any transport: attributes, data, and the JSON format.

The specification has rules for the attributes: the required ones, their names, and their values. This module checks the
rules itself, without the CloudEvents project's SDK. That SDK makes up a missing id or time, and cuts times to
microseconds. The SDK also writes `True` for true, writes a list in Python's form, and parses data that should pass
untouched.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from encodings.aliases import aliases
from typing import Any

from mesh.json_types import type_name
from services.sidecar.faults import Violation
from services.sidecar.formats import json_text

SPECVERSION = "1.0"
JSON = "application/cloudevents+json"
JSON_BATCH = "application/cloudevents-batch+json"
REQUIRED = ("specversion", "id", "source", "type")

Attribute = str | int | bool
Place = Callable[[str], str]
"""From an attribute's name to its place in the caller's request, as a JSON pointer."""

_NAME = re.compile(r"[a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_URI = re.compile(r"""[^\s<>"{}|\\^`]+""")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_TOKEN = r"[A-Za-z0-9!#$&^_.+-]+"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}\s*(;.*)?")
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^";\s]+)', re.IGNORECASE)
_MAX_INT = 2**31 - 1
_CHARSETS = {
    *("ascii", "utf_8", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be", "gbk", "gb18030"),
    *("big5", "shift_jis", "euc_jp", "euc_kr", "koi8_r", "koi8_u", "latin_1"),
    *(f"iso8859_{part}" for part in (*range(2, 12), *range(13, 17))),
    *(f"cp{page}" for page in range(1250, 1259)),
}
"""Python's names of character sets. Python also has codecs that are no character sets (escapes, domain names, a codec
that always fails). Python remembers for ever each unknown name that it was asked for."""


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event. An event from the functions of this module is valid."""

    attributes: Mapping[str, Attribute]
    """The attributes by name, in the caller's order; `datacontenttype` is among them."""
    data: bytes | None = None
    """The data, in the type that `datacontenttype` names; None when the event has no data."""

    def text(self, name: str) -> str | None:
        """An attribute as the specification writes it as text."""
        value = self.attributes.get(name)
        return None if value is None else canonical(value)


def canonical(value: Attribute) -> str:
    """An attribute as text, for headers."""
    match value:
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def violations(attributes: Mapping[str, Any], place: Place) -> list[Violation]:
    """All that is wrong with the attributes of an event."""
    found = [
        Violation(place(name), f"required attribute '{name}' not found") for name in REQUIRED if name not in attributes
    ]
    for name, value in attributes.items():
        if wrong := complaint(name, value):
            found.append(Violation(place(name), wrong))
    return found


def from_json(value: Any, pointer: str = "") -> CloudEvent | list[Violation]:
    """An event from its JSON format, or all that is wrong with it."""
    if not isinstance(value, dict):
        return [Violation(pointer, f"{type_name(value)} found, object expected")]
    given = {name: one for name, one in value.items() if name not in ("data", "data_base64") and one is not None}
    found = violations(given, lambda name: f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    data: bytes | None = None
    try:
        if value.get("data_base64") is not None:
            if "data" in value:
                found.append(Violation(f"{pointer}/data_base64", "data and data_base64 exclude each other; send one"))
            data = _from_base64(value["data_base64"])
        elif "data" in value:
            given.setdefault("datacontenttype", "application/json")
            data = _encoded(value["data"], given["datacontenttype"])
    except ValueError as error:
        member = "data" if value.get("data_base64") is None else "data_base64"
        found.append(Violation(f"{pointer}/{member}", str(error)))
    return found or CloudEvent(given, data)


def to_json(event: CloudEvent) -> dict[str, object]:
    """The JSON format of an event, for `json_text.dumps`. Data in JSON is included unchanged."""
    shown: dict[str, object] = dict(event.attributes)
    if event.data is None:
        return shown
    content_type = event.text("datacontenttype")
    try:
        if content_type is None or is_json(content_type):
            return {**shown, "data": json_text.checked(event.data)}
        if _is_text(content_type):
            return {**shown, "data": event.data.decode(_charset(content_type))}
    except (json_text.JsonError, UnicodeError, LookupError):
        pass  # the data does not fit its type, so the event shows its bytes
    return {**shown, "data_base64": base64.b64encode(event.data).decode("ascii")}


def is_json(content_type: str) -> bool:
    """Whether data of this type is JSON."""
    subtype = content_type.partition(";")[0].strip().lower().partition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def complaint(name: str, value: Any) -> str:
    """The fault of an attribute, as text; empty when the attribute is valid."""
    if not _NAME.fullmatch(name) or name == "data":
        return "not the name of an attribute: only a-z and 0-9, and not 'data'"
    check = _CHECKS.get(name)
    if check is None:
        return _any_value(value)
    if not isinstance(value, str):
        return f"{type_name(value)} found, string expected"
    return "must not be empty" if not value else _any_value(value) or check(value)


def _any_value(value: Any) -> str:
    match value:
        case bool():
            return ""
        case int():
            return "" if -_MAX_INT - 1 <= value <= _MAX_INT else "an integer of an event has 32 bits"
        case str():
            return "must not contain control characters" if _CONTROL.search(value) else ""
        case _:
            return f"{type_name(value)} found, string, integer or boolean expected"


def _specversion(value: str) -> str:
    return "" if value == SPECVERSION else f"must be '{SPECVERSION}', the version that is spoken here"


def _uri_reference(value: str) -> str:
    return "" if _URI.fullmatch(value) else "not a URI reference (RFC 3986)"


def _uri(value: str) -> str:
    return "" if _URI.fullmatch(value) and _SCHEME.match(value) else "not an absolute URI (RFC 3986)"


def _time(value: str) -> str:
    try:
        if _TIME.fullmatch(value):
            datetime.fromisoformat(value.upper())
            return ""
    except ValueError:
        pass
    return "not a time with its offset (RFC 3339), such as 2026-01-31T12:00:00Z"


def _media_type(value: str) -> str:
    return "" if _MEDIA_TYPE.fullmatch(value) else "not a media type (RFC 2046), such as application/json"


def _text(value: str) -> str:
    return ""


_CHECKS: Mapping[str, Callable[[str], str]] = {
    "specversion": _specversion,
    "id": _text,
    "source": _uri_reference,
    "type": _text,
    "datacontenttype": _media_type,
    "dataschema": _uri,
    "subject": _text,
    "time": _time,
    "partitionkey": _text,
}
"""Attributes that are text and not empty, each with the check of its further rules."""


def _from_base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{type_name(value)} found, base64 text expected")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from None


def _encoded(value: Any, content_type: Any) -> bytes:
    """The member `data` as bytes of the event's content type."""
    if not isinstance(content_type, str) or is_json(content_type):
        try:
            return json_text.dumps(value)
        except (json_text.JsonError, UnicodeEncodeError) as error:
            raise ValueError(str(error)) from None
    if not isinstance(value, str):
        raise ValueError(f"{type_name(value)} found, text of type {content_type} expected; for bytes use data_base64")
    try:
        return value.encode(_charset(content_type))
    except (UnicodeEncodeError, LookupError) as error:
        raise ValueError(f"cannot be written as {content_type}: {error}") from None


def _is_text(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type.startswith("text/") or media_type == "application/xml" or media_type.endswith("+xml")


def _charset(content_type: str) -> str:
    """The character set that the content type names. LookupError when the set is unknown."""
    found = _CHARSET.search(content_type)
    if found is None:
        return "utf_8"
    name = re.sub("[^a-z0-9]+", "_", found[1].lower())
    known = aliases.get(name, name)
    if known not in _CHARSETS:
        raise LookupError(f"unknown charset: {found[1][:40]}")
    return known
