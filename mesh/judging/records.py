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
    """The parts of a record that a transformation may change."""

    value: bytes | None
    headers: Headers


class UnjudgedError(Exception):
    """A record that a filter or transformation can't be applied to; the message says why.

    A copier stops at such a record and names it: a record left out would be lost, and a record copied unjudged would be
    where it must not be. Content rules of routers do not raise this error: they send the record to the dead letters.
    """
