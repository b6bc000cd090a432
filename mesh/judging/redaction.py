"""Replaces fields of a JSON text by "***" and leaves every other byte of it as it is.

Theory of operation
1. The text is read as JSON; what is none is refused.
2. A text that comes out again as it went in (most programs write JSON without spaces, as we do) is changed as a
   document and written again. That is quick.
3. Any other text is scanned down the path. Regular expressions skip the values beside the path, so numbers keep their
   digits. A name that occurs twice is found twice, whichever one a reader believes. The scan finds a list of places;
   the new text is everything between these places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson

from mesh.judging.values import read_json
from mesh.record_transforms import ELEMENTS, JsonPath

REDACTED = "***"
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_SPACE = re.compile(rb"[ \t\n\r]*")
_NAME = re.compile(rb'[ \t\n\r]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\n\r]*:[ \t\n\r]*')
_SCALAR = re.compile(_STRING + rb"|[^ \t\n\r,\]}]+")
_BRACKET = re.compile(_STRING + rb"|([\[{])|([\]}])")
_OBJECT, _LIST = ord("{"), ord("[")
_ENDS = b"]}"


class Redaction:
    """Redacts what one path names."""

    def __init__(self, path: JsonPath) -> None:
        self._path = path
        self._steps = tuple(ELEMENTS if step is ELEMENTS else step.encode() for step in path)

    def __call__(self, value: bytes) -> bytes:
        """The value with what the path names replaced; the same one when that is not there. UnreadableError."""
        document = read_json(value)
        if not _comes_out_again(document, value):
            return self._scanned(value)
        if not isinstance(document, dict | list):
            return value
        return orjson.dumps(document) if _replace(document, self._path) else value

    def _scanned(self, text: bytes) -> bytes:
        places: list[tuple[int, int]] = []
        _visit(text, _after_space(text, 0), self._steps, places)
        if not places:
            return text
        pieces, at = [], 0
        for begin, end in places:
            pieces += [text[at:begin], orjson.dumps(REDACTED)]
            at = end
        pieces.append(text[at:])
        return b"".join(pieces)


def _comes_out_again(document: object, text: bytes) -> bool:
    try:
        return orjson.dumps(document) == text
    except orjson.JSONEncodeError:  # deeper than it writes
        return False


def _replace(document: Any, path: JsonPath) -> bool:
    """Replaces what the path names in a document; whether there was any."""
    step, *rest = path
    if step is ELEMENTS:
        keys: Iterable[Any] = range(len(document)) if isinstance(document, list) else ()
    else:
        keys = (step,) if isinstance(document, dict) and step in document else ()
    found = False
    for key in keys:
        if rest:
            found |= _replace(document[key], tuple(rest))
        else:
            document[key] = REDACTED
            found = True
    return found


def _visit(text: bytes, at: int, steps: tuple[bytes | None, ...], places: list[tuple[int, int]]) -> int:
    """Notes the places that the path names in the value that begins at `at`; returns where the value ends."""
    if not steps:
        end = _end(text, at)
        places.append((at, end))
        return end
    step, *further = steps
    rest = tuple(further)
    if text[at] != (_LIST if step is ELEMENTS else _OBJECT):
        return _end(text, at)
    at = _after_space(text, at + 1)
    while text[at] not in _ENDS:
        if step is ELEMENTS:
            at = _visit(text, at, rest, places)
        else:
            name = _NAME.match(text, at)
            assert name is not None  # JSON objects are like this
            at = name.end()
            at = _visit(text, at, rest, places) if _is_called(name[1], step) else _end(text, at)
        at = _after_space(text, at)
        if text[at] not in _ENDS:
            at = _after_space(text, at + 1)  # a comma
    return at + 1


def _is_called(quoted: bytes, name: bytes) -> bool:
    if b"\\" in quoted:
        return bool(orjson.loads(quoted) == name.decode())
    return quoted[1:-1] == name


def _end(text: bytes, at: int) -> int:
    """The end of the value that begins at `at`."""
    if text[at] not in b"[{":
        scalar = _SCALAR.match(text, at)
        assert scalar is not None  # JSON values are like this
        return scalar.end()
    depth = 0
    for token in _BRACKET.finditer(text, at):
        if token[1]:
            depth += 1
        elif token[2]:
            depth -= 1
            if depth == 0:
                return token.end()
    raise AssertionError("JSON that was read ends its lists and objects")


def _after_space(text: bytes, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None  # it matches nothing, too
    return space.end()
