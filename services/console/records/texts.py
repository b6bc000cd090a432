"""How bytes of a record read on a page: as text, or as hex or base64. No I/O.

A record may hold anything. The templates escape what HTML would take for its own. Here, characters that a reader would
not see (those that turn the direction of a text, for example) become escapes, and no more is shown than a bound.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace

from mesh.schemas.framing import ID_LENGTH
from services.console.records.decoding import Decoded

KEPT = "\t\n\r"
WIDEST = 4
"""Bytes of one character in UTF-8."""
HEX, BASE64 = "hex", "base64"
NULL, EMPTY = "null", "empty"
JSON, TEXT, BYTES = "JSON", "text", "bytes"
LARGEST_JSON = 1024 * 1024
"""Bytes that are parsed to say that a text is JSON."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A key, a value or the value of a header, for a page."""

    text: str
    kind: str
    size: int
    is_cut: bool = False
    schema: int | None = None
    """The schema id that stands in front of the data, if a serializer with a registry wrote it."""
    why: str = ""
    """Why the data are not shown by their schema."""

    @property
    def label(self) -> str:
        return self.kind if self.schema is None else f"{self.kind}, schema id {self.schema}"


def shown(data: bytes | None, most: int, form: str = HEX, decoded: Decoded | None = None) -> Shown:
    """`most`: bytes of the data, or characters of the decoded data, that are shown."""
    if data is None:
        return Shown("", NULL, 0)
    if decoded is not None:
        if decoded.why:
            return replace(shown(data, most, form), why=decoded.why)
        is_cut = decoded.is_cut or len(decoded.text) > most
        return Shown(visible(decoded.text[:most]), decoded.kind, len(data), is_cut, _schema(data))
    if not data:
        return Shown("", EMPTY, 0)
    text = readable(data)
    if text is not None:
        return _text(text, data, most, _kind(data), None)
    schema = _schema(data)
    if schema is not None:
        rest = data[ID_LENGTH:]
        inner = readable(rest)
        if inner is not None and _kind(rest) == JSON:
            return _text(inner, rest, most, JSON, schema)
    part = data[:most]
    written = base64.b64encode(part).decode() if form == BASE64 else part.hex(" ")
    return Shown(written, f"{BYTES} in {form}", len(data), len(data) > most, schema)


def _schema(data: bytes) -> int | None:
    """The schema id in front of the data. A newer form has it in a header, or has another identity in its place."""
    return int.from_bytes(data[1:ID_LENGTH]) if len(data) > ID_LENGTH and data[0] == 0 else None


def readable(data: bytes) -> str | None:
    """The text that the bytes are, if they are UTF-8 without control characters, as the sidecar has it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    controls = any((each < " " and each not in KEPT) or each == "\x7f" for each in text)
    return None if controls else text


def visible(text: str) -> str:
    """With escapes for what a reader would not see."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in KEPT else each.encode("unicode_escape").decode() for each in text
    )


def _text(text: str, data: bytes, most: int, kind: str, schema: int | None) -> Shown:
    is_cut = len(data) > most
    if is_cut:
        text = data[:most].decode(errors="ignore")
    return Shown(visible(text), kind, len(data), is_cut, schema)


def _kind(data: bytes) -> str:
    """JSON, if the text is an object or a list; a number alone is a text."""
    if data.lstrip()[:1] not in (b"{", b"[") or len(data) > LARGEST_JSON:
        return TEXT
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return TEXT
    return JSON
