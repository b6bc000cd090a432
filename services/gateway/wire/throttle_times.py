"""The place of the throttle time in an answer in bytes, and how to raise it there.

In nearly all answers it is the first field of the body; in a Produce answer the last one. The few answers that have
it in the middle, or not at all, stay as they are.
"""

from collections.abc import Sequence
from enum import Enum
from functools import cache

from services.gateway.wire.apis import ApiKey, response_header_version
from services.gateway.wire.frames import SIZE_BYTES
from services.gateway.wire.primitives import INT32, Buffer
from services.gateway.wire.schema import Kind, fields_of, message_of

_FIELD = "throttle_time_ms"
_BEHIND_ID = SIZE_BYTES + INT32.size
_NO_TAGS = 0


class _Place(Enum):
    FIRST = "first"
    LAST = "last"


@cache
def _place(api_key: int, version: int) -> tuple[_Place | None, bool]:
    """The place, and whether the answer has a header with tags."""
    spec = message_of(api_key, Kind.RESPONSE)
    has_tags = response_header_version(api_key, version) > 0
    if spec is None:
        return None, has_tags
    names = [
        name
        for name, field, _ in fields_of(spec.cls)
        if field.tag is None and field.since <= version and (field.until is None or version <= field.until)
    ]
    if names and names[0] == _FIELD:
        return _Place.FIRST, has_tags
    is_last = api_key == ApiKey.PRODUCE and bool(names) and names[-1] == _FIELD
    return (_Place.LAST if is_last else None), has_tags


def with_throttle_time(api_key: int, version: int, pieces: Sequence[Buffer], least_ms: int) -> Sequence[Buffer]:
    """The pieces of a framed answer, whose throttle time is at least this. A longer one of a broker stays."""
    place, has_tags = _place(api_key, version)
    if place is None:
        return pieces
    if place is _Place.FIRST:
        head = bytes(pieces[0][: _BEHIND_ID + 1])
        if has_tags and (len(head) <= _BEHIND_ID or head[_BEHIND_ID] != _NO_TAGS):
            return pieces
        return _raised(pieces, _BEHIND_ID + has_tags, least_ms)
    size = _size(pieces)
    if not has_tags:
        return _raised(pieces, size - INT32.size, least_ms)
    if pieces[-1][len(pieces[-1]) - 1] != _NO_TAGS:  # it names another leader, to which its client is about to go
        return pieces
    return _raised(pieces, size - INT32.size - 1, least_ms)


def _raised(pieces: Sequence[Buffer], at: int, least_ms: int) -> Sequence[Buffer]:
    """The pieces with at least this number at this place."""
    index = 0
    while index < len(pieces) and at >= len(pieces[index]):
        at -= len(pieces[index])
        index += 1
    if at + INT32.size > _size(pieces[index:]):
        return pieces
    piece = memoryview(pieces[index])
    if at + INT32.size > len(piece):  # in two pieces
        piece = memoryview(b"".join(pieces[index:]))
        pieces = (*pieces[:index], piece)
    if INT32.unpack_from(piece, at)[0] >= least_ms:
        return pieces
    if not piece.readonly:
        INT32.pack_into(piece, at, least_ms)
        return pieces
    changed = bytearray(piece)
    INT32.pack_into(changed, at, least_ms)
    return (*pieces[:index], changed, *pieces[index + 1 :])


def _size(pieces: Sequence[Buffer]) -> int:
    return sum(map(len, pieces))
