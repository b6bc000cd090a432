"""Pages of lists: sizes within bounds, tokens that only this file understands."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, TypeVar

from services.control.domain.errors import InvalidField

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000
AT_REVISION = re.compile(r"(\d+) (\d+)")

T = TypeVar("T")


def listing_of(what: str, request: Any) -> str:
    """The list that the pages of a request belong to: the request without page token and page size."""
    asked = type(request)()
    asked.CopyFrom(request)
    asked.ClearField("page_token")
    asked.ClearField("page_size")
    return f"{what} {sha256(asked.SerializeToString(deterministic=True)).hexdigest()[:16]}"


def page_size(wanted: int) -> int:
    """0 means 100, more than 1000 counts as 1000."""
    if wanted < 0:
        raise InvalidField("page_size", f"{wanted} is negative; 0 means {DEFAULT_SIZE}")
    return min(wanted or DEFAULT_SIZE, LARGEST_SIZE)


def token(listing: str, place: int | str) -> str:
    """An opaque token for the page of `listing` that goes on after `place`."""
    return base64.urlsafe_b64encode(json.dumps([listing, place]).encode()).decode().rstrip("=")


def place_of(listing: str, page_token: str) -> int | str | None:
    """What `token` was made from; None for the first page."""
    if not page_token:
        return None
    try:
        padded = page_token + "=" * (-len(page_token) % 4)
        name, place = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError):
        name, place = None, None
    if name != listing or not isinstance(place, int | str):
        raise InvalidField("page_token", "not a token of this list; take next_page_token of the page before, or none")
    return place


def number_of(listing: str, page_token: str) -> int | None:
    """As `place_of`, for lists that are counted."""
    place = place_of(listing, page_token)
    if isinstance(place, str):
        raise InvalidField("page_token", "not a token of this list; take next_page_token of the page before, or none")
    return place


def place_at_revision(listing: str, page_token: str) -> tuple[int, int] | None:
    """For lists of one revision: that of the first page, which all pages follow, and the items before this page."""
    parts = AT_REVISION.fullmatch(str(place_of(listing, page_token)))
    return None if parts is None else (int(parts[1]), int(parts[2]))


def cut_at_revision(
    listing: str, items: Sequence[T], revision: int, start: int, wanted: int
) -> tuple[Sequence[T], str]:
    """One page of the items of a revision, from `start` on, and the token of the next page."""
    end = start + page_size(wanted)
    return items[start:end], token(listing, f"{revision} {end}") if end < len(items) else ""


def cut(listing: str, items: Sequence[T], keys: Sequence[str], wanted: int, page_token: str) -> tuple[Sequence[T], str]:
    """One page of `items`, sorted by `keys`; the place survives that items come and go."""
    size, after = page_size(wanted), place_of(listing, page_token)
    start = 0 if after is None else next((i for i, key in enumerate(keys) if key > str(after)), len(items))
    end = min(start + size, len(items))
    return items[start:end], token(listing, keys[end - 1]) if end < len(items) else ""
