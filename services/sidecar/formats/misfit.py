"""The place in a JSON value that does not fit. Only the rising error collects the path; fitting values cost nothing.

The path is built from the innermost part outwards.
"""

from collections.abc import Iterable

from mesh.schemas.schema import FormatError
from services.sidecar.formats import json_text

LONGEST_SHOWN = 100
_TOKENS: dict[type, str] = {
    str: "VALUE_STRING",
    int: "VALUE_NUMBER_INT",
    float: "VALUE_NUMBER_FLOAT",
    type(None): "VALUE_NULL",
    dict: "START_OBJECT",
    list: "START_ARRAY",
}


class MisfitError(Exception):
    """A part of a value does not fit. Each function that the error passes adds the part that it was converting."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str | int] = []
        """The parts, from the innermost outwards."""

    def at(self, part: str | int) -> "MisfitError":
        self.path.append(part)
        return self

    def as_format_error(self) -> FormatError:
        return FormatError(f"{pointer(reversed(self.path))}: {self}")


def expected(name: str, value: object) -> MisfitError:
    """An error with the original's text: the expected type, and the kind of JSON that was found."""
    return MisfitError(f"Expected {name}. Got {token(value)}")


def token(value: object) -> str:
    """The kind of a JSON value, as the original calls it."""
    if isinstance(value, bool):
        return "VALUE_TRUE" if value else "VALUE_FALSE"
    return _TOKENS.get(type(value), "START_OBJECT")


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer as a fragment: `#/a/0`; the whole value is `#`."""
    return "".join(["#", *(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)])


def shown(value: object) -> str:
    """A value in a message: as it was written, within bounds."""
    text = json_text.dumps(value).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
