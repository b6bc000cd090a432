"""The error codes in answers, which the gateway counts, and the answers that a client sees as a failure.

While a canary runs, the gateway counts failures twice: those of connections that try the table, and of all others.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from services.gateway.requests.plan import Answer, Body, Close, NoAnswer, RawResponse, Versioned
from services.gateway.wire.errors import RETRIABLE, ErrorCode
from services.gateway.wire.schema import Struct, fields_of

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


@dataclass(frozen=True, slots=True)
class _Reader:
    """The places of error codes in a message."""

    codes: tuple[str, ...]
    """Fields that are codes, ..."""
    lists: tuple[tuple[str, "_Reader"], ...]
    """... and lists with codes in them, by their fields."""

    def read(self, part: Any, found: set[int]) -> None:
        for name in self.codes:
            found.add(getattr(part, name))
        for name, reader in self.lists:
            for each in getattr(part, name) or ():
                reader.read(each, found)


_readers: dict[type[Struct], _Reader] = {}


def _reader_of(cls: type[Struct]) -> _Reader:
    found = _readers.get(cls)
    if found is None:
        found = _readers[cls] = _made_reader(cls)
    return found


def _made_reader(cls: type[Struct]) -> _Reader:
    lists = ((name, _reader_of(spec.struct)) for name, spec, _ in fields_of(cls) if spec.repeated and spec.struct)
    codes = tuple(name for name, _, _ in fields_of(cls) if name.endswith("error_code"))
    return _Reader(codes, tuple((name, each) for name, each in lists if each.codes or each.lists))


def codes_of(answer: Answer) -> Collection[int]:
    """The different error codes in an answer, without that of success. Answers that pass as bytes have none: the
    gateway has checked them."""
    match answer:
        case Close() | RawResponse() | NoAnswer():
            return ()
        case Body(_, codes):
            found = set(codes)
        case Versioned(message, _) | message:
            found = set()
            _reader_of(type(message)).read(message, found)
    found.discard(ErrorCode.NONE)
    return found


def is_failure(answer: Answer) -> bool:
    """Whether a part of the answer has failed for good."""
    return isinstance(answer, Close) or not EVERYDAY.issuperset(codes_of(answer))
