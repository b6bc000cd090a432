"""Answers as an assistant gets them: bounded JSON, in which no text hides a character. No I/O.

An answer is proto JSON, as `meshctl -o json` prints it. Texts in an answer were written by others: names, reasons,
client ids. Characters that nobody sees could carry orders past the reader, so they are shown by their number.
"""

from __future__ import annotations

import json
from typing import Any

MOST_ITEMS = 100
"""Items of one list; lists with pages have their own, smaller bound."""
MOST_CHARACTERS = 2_000
"""Characters of one text."""
MOST_BYTES = 200_000
"""Bytes of a whole answer: what an assistant can still read."""


class TooLongError(Exception):
    """An answer is too long; the message says how to get a part."""


def bounded(document: dict[str, Any]) -> dict[str, Any]:
    """The document within the bounds. `left_out` counts the items that are missing, by the list's place.

    TooLongError if the rest is still too long.
    """
    left_out: dict[str, int] = {}
    made: dict[str, Any] = _bounded(document, "", left_out)
    if left_out:
        made["left_out"] = left_out
    size = len(json.dumps(made, ensure_ascii=False).encode())
    if size > MOST_BYTES:
        raise TooLongError(
            f"the answer has {size:,} bytes, more than {MOST_BYTES:,}: "
            "ask for less, with a smaller page_size or a filter"
        )
    return made


def _bounded(value: Any, place: str, left_out: dict[str, int]) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {
                clean(key): _bounded(each, f"{place}.{key}" if place else str(key), left_out)
                for key, each in value.items()
            }
        case list():
            if len(value) > MOST_ITEMS:
                left_out[clean(place)] = left_out.get(clean(place), 0) + len(value) - MOST_ITEMS
            return [_bounded(each, place, left_out) for each in value[:MOST_ITEMS]]
        case _:
            return value


def clean(text: str) -> str:
    """The text, at most MOST_CHARACTERS of it, with characters that nobody sees as their numbers."""
    shown = text[:MOST_CHARACTERS]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() or each == "\n" else f"<U+{ord(each):04X}>" for each in shown)
    more = len(text) - MOST_CHARACTERS
    return f"{shown}... ({more:,} more characters)" if more > 0 else shown
