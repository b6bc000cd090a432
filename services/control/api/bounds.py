"""Bounds of what callers write: each text of a request, so that no event and no audit event grows without one."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from services.control.domain.errors import InvalidField

LONGEST_TEXT: Final = 64 * 1024
"""Characters of any text: a bundle of certificates as a property is the longest that callers have."""
LONGEST: Final = {"reason": 1_000, "request_id": 100, "name": 1_000, "parent": 1_000, "page_token": 1_000}
"""Characters of fields that every kind of request may have."""
LONGEST_KEY: Final = 255
"""Characters of the name of a property."""
SHORTEST_BOUND: Final = min(*LONGEST.values(), LONGEST_KEY)


def check_bounds(request: Message) -> None:
    """InvalidField when a text of the request is too long."""
    if request.ByteSize() > SHORTEST_BOUND:
        _check(request, "")


def _check(message: Message, where: str) -> None:
    for field, value in message.ListFields():
        place = f"{where}{field.name}"
        most = LONGEST.get(field.name, LONGEST_TEXT)
        if isinstance(value, str):
            _check_text(place, value, most)
        elif isinstance(value, Message):
            _check(value, f"{place}.")
        elif hasattr(value, "items"):
            for key, each in value.items():
                _check_text(f"the name of a property in {place}", str(key), LONGEST_KEY)
                _check_each(f"{place}[{key}]", each, most)
        elif field.is_repeated:
            for index, each in enumerate(value):
                _check_each(f"{place}[{index}]", each, most)


def _check_each(place: str, value: object, most: int) -> None:
    if isinstance(value, str):
        _check_text(place, value, most)
    elif isinstance(value, Message):
        _check(value, f"{place}.")


def _check_text(place: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidField(place, f"has {len(text)} characters, and at most {most} are possible")
