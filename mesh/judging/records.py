"""A record as those see it who judge it, and what may be changed of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

Headers = list[tuple[str, bytes | None]]
"""In their order; a name may come twice."""


class Record(Protocol):
    """`confluent_kafka.Message` as it is, so that none is copied."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]:
        """Kind, and milliseconds since 1970."""


class Content(NamedTuple):
    """What a transformation may change."""

    value: bytes | None
    headers: Headers


class UnjudgedError(Exception):
    """A record that a filter or transformation can't be applied to; the message says why.

    Who copies records stops there and says so: a record that it left out would be lost, one that it copied unjudged
    would be where it must not be. Content rules of routers raise none: what they can't judge is a dead letter.
    """
