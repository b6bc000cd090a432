"""Replaces fields of JSON by their paths, and leaves every other character as it is.

A value that is parsed and written again is another one: numbers lose digits, names that come twice are lost, spaces go.
So the text is walked along the paths alone. All that lies beside them is read over by the parser of the standard
library, which checks it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # typeshed has not its name
from typing import Any, Final, NamedTuple, NoReturn

from mesh.protection.documents import Part, Steps, UnreadableError, field_at, joined, steps_behind, steps_of
from mesh.record_transforms import ELEMENTS, JsonPath

MASK: Final = b'"***"'
_PREFIXES: Final = {0: 5, 1: 17}
"""The first byte of a value with a registry's prefix, which no JSON begins with, and the length of the prefix."""
_SPACES: Final = " \t\n\r"


class NotJsonError(UnreadableError):
    """The text is no JSON: where, and why."""


class Span(NamedTuple):
    """A field in the text."""

    start: int
    end: int
    field: int
    """The index of its path."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _number(_: str) -> int:
    return 0  # nobody needs it, and a number with thousands of digits takes long


_SCANNER: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder(
    parse_float=_number, parse_int=_number, parse_constant=_refuse
).scan_once  # type: ignore[attr-defined]


def spans(text: str, paths: tuple[JsonPath, ...]) -> list[Span]:
    """The fields at these paths, in the order of the text; a name that comes twice counts twice. NotJsonError.

    No path leads through another one.
    """
    found: list[Span] = []
    try:
        at = _walk(text, _skip(text, 0), steps_of(paths), found)
    except JSONDecodeError as error:
        raise NotJsonError(f"it is no JSON: {error.msg} at character {error.pos + 1}") from None
    except StopIteration as error:
        raise NotJsonError(f"it is no JSON: no value at character {error.value + 1}") from None
    except (IndexError, RecursionError, ValueError) as error:
        reason = str(error) if type(error) is ValueError else "it is cut short, or too deep"
        raise NotJsonError(f"it is no JSON: {reason}") from None
    if _skip(text, at) != len(text):
        raise NotJsonError(f"it is no JSON: more text begins at character {at + 1}")
    return found


def _walk(text: str, at: int, steps: Steps, found: list[Span]) -> int:
    """Reads the value at `at`, and notes the fields; returns the end of the value."""
    start = at
    first = text[at : at + 1]
    if first == "{" and any(path and path[0] is not ELEMENTS for path, _ in steps):
        at = _object(text, at, steps, found)
    elif first == "[" and any(path and path[0] is ELEMENTS for path, _ in steps):
        at = _list(text, at, steps, found)
    else:
        _, at = _SCANNER(text, at)
    return at if start < at else _nothing(at)


def _nothing(at: int) -> NoReturn:
    raise StopIteration(at)


def _object(text: str, at: int, steps: Steps, found: list[Span]) -> int:
    at = _skip(text, at + 1)
    if text[at] == "}":
        return at + 1
    while True:
        if text[at] != '"':
            raise JSONDecodeError("a name is missing", text, at)
        name, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise JSONDecodeError("':' is missing", text, at)
        at = _value(text, _skip(text, at + 1), steps_behind(steps, name), found)
        at = _skip(text, at)
        if text[at] == "}":
            return at + 1
        if text[at] != ",":
            raise JSONDecodeError("',' is missing", text, at)
        at = _skip(text, at + 1)


def _list(text: str, at: int, steps: Steps, found: list[Span]) -> int:
    at = _skip(text, at + 1)
    if text[at] == "]":
        return at + 1
    inner = steps_behind(steps, ELEMENTS)
    while True:
        at = _skip(text, _value(text, at, inner, found))
        if text[at] == "]":
            return at + 1
        if text[at] != ",":
            raise JSONDecodeError("',' is missing", text, at)
        at = _skip(text, at + 1)


def _value(text: str, at: int, steps: Steps, found: list[Span]) -> int:
    here = field_at(steps)
    if here is None:
        return _walk(text, at, steps, found)
    _, end = _SCANNER(text, at)
    found.append(Span(at, end, here))
    return end


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _SPACES and at < len(text):
        at += 1
    return at


class JsonDocument:
    """A value that is JSON, with or without the prefix of a schema registry."""

    def __init__(self, value: bytes, paths: tuple[JsonPath, ...]) -> None:
        """NotJsonError."""
        length = _PREFIXES.get(value[0], 0) if value else 0
        try:
            text = value[length:].decode()
        except UnicodeDecodeError as error:
            raise NotJsonError(f"it is no JSON: no UTF-8 at byte {length + error.start + 1}") from None
        self._prefix, self._text = value[:length], text
        self._spans = spans(text, paths)
        self.parts: Sequence[Part] = [
            Part(field, (written := text[start:end]).encode(), _token(written)) for start, end, field in self._spans
        ]

    def token(self, part: Part, text: str) -> bytes:
        return f'"{text}"'.encode()

    def clear(self, part: Part, clear: bytes) -> bytes:
        return clear

    def mask(self, part: Part) -> bytes:
        return MASK

    def with_parts(self, new: Sequence[bytes]) -> bytes:
        places = [(span.start, span.end) for span in self._spans]
        return self._prefix + joined(self._text, places, [each.decode() for each in new]).encode()


def _token(written: str) -> str:
    """The text of a field, if it may be a token."""
    if not written.startswith('"mesh:'):
        return ""
    text = json.loads(written)
    return text if isinstance(text, str) else ""
