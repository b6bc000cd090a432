"""The answers that a client sees as a failure. A gateway counts them while a canary runs: those of its connections, and
those of all others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from services.gateway.requests.plan import Answer, Body, Close, NoAnswer, RawResponse, Versioned
from services.gateway.wire.errors import RETRIABLE, ErrorCode
from services.gateway.wire.schema import Struct

EVERYDAY = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        *RETRIABLE,
    }
)
"""Errors that clients expect, or answer by another try or another join."""
MAX_PARTS = 100
"""Parts of an answer whose error codes are read, on each level."""
MAX_DEPTH = 3
"""Answers hold partitions in topics, at most inside one more list."""


def is_failure(answer: Answer) -> bool:
    """Whether a part of the answer has failed for good. The gateway has already checked answers that pass as bytes."""
    match answer:
        case Close():
            return True
        case RawResponse() | Body() | NoAnswer():
            return False
        case Versioned(message, _):
            return any(code not in EVERYDAY for code in _codes(message, MAX_DEPTH))
        case _:
            return any(code not in EVERYDAY for code in _codes(answer, MAX_DEPTH))


def _codes(part: Struct, depth: int) -> Iterator[int]:
    code = getattr(part, "error_code", None)
    if isinstance(code, int):
        yield code
    if depth == 0:
        return
    for each in fields(part):
        value: Any = getattr(part, each.name)
        if isinstance(value, list) and value and isinstance(value[0], Struct):
            yield from _codes_of_all(value[:MAX_PARTS], depth - 1)


def _codes_of_all(parts: Iterable[Struct], depth: int) -> Iterator[int]:
    for part in parts:
        yield from _codes(part, depth)
