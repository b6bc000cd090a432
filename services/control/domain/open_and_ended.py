"""Control sees to orders, replays and drains until they end: the open ones, and the last ended ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from services.control.domain.errors import Unknown

LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, the last year that a google.protobuf.Timestamp knows."""


class Made(Protocol):
    """A message with a name, that was made once."""

    @property
    def name(self) -> str: ...
    @property
    def create_time(self) -> Timestamp: ...


M = TypeVar("M", bound=Made)


@dataclass(frozen=True, slots=True)
class OpenAndEnded(Generic[M]):
    """All that are known, by name; the oldest come first. Nobody changes the messages in it."""

    open: Mapping[str, M] = field(default_factory=dict)
    """As the log has them."""
    ended: Mapping[str, M] = field(default_factory=dict)
    """The last ones with an end, in the order of their ends."""

    kind: ClassVar[str]
    """The noun for one of them."""

    def get(self, name: str) -> M:
        known = self.open.get(name) or self.ended.get(name)
        if known is None:
            text = f"{self.kind} {name!r} is not known: never begun, or so old that only the log tells of it"
            raise Unknown(name, text)
        return known

    def newest(self, *, open_only: bool = False) -> list[M]:
        """The newest first."""
        return sorted((*self.open.values(), *(() if open_only else self.ended.values())), key=newest_first)


def newest_first(made: Made) -> str:
    """A key to sort orders, replays, moves or drains by, also as text."""
    return f"{(LAST_SECOND + 1) * 1_000_000_000 - made.create_time.ToNanoseconds():021d} {made.name}"
