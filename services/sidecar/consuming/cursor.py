"""How far a stream has come, as text that a client keeps and sends back without looking into it."""

import base64
import binascii
from collections.abc import Mapping

import orjson

from services.sidecar.records import Partition

MAX_CURSOR_LENGTH = 64 * 1024
"""Room for a thousand partitions and more."""


class CursorError(ValueError):
    """The text is no cursor of ours."""


def cursor_of(positions: Mapping[Partition, int]) -> str:
    """A cursor for the next offsets of partitions."""
    topics: dict[str, dict[str, int]] = {}
    for place, offset in positions.items():
        topics.setdefault(place.topic, {})[str(place.partition)] = offset
    return base64.urlsafe_b64encode(orjson.dumps(topics)).rstrip(b"=").decode("ascii")


def positions_in(cursor: str) -> dict[Partition, int]:
    """The next offsets in a cursor. CursorError if it holds none."""
    try:
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise CursorError("it is too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        topics = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        return {
            Partition(topic, int(number)): _offset(offset)
            for topic, partitions in topics.items()
            for number, offset in partitions.items()
        }
    except (binascii.Error, ValueError, AttributeError) as error:
        raise CursorError("it is none that this sidecar gave") from error


def _offset(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise CursorError("an offset in it is none")
    return given
