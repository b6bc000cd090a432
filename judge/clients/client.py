"""The interface of a process's client. Each client speaks Kafka by its own library, or by the judge's codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from judge.history import Guarantee, Mark, Outcome, Place, Poll, Send, Taken


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of one send, or of a whole transaction."""

    outcome: Outcome
    sends: tuple[Send, ...]
    via: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Polled:
    polls: tuple[Poll, ...]
    rebalanced: bool = False
    via: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """The records that a share group gave, and whether Kafka has stored the member's acknowledgements."""

    outcome: Outcome
    taken: tuple[Taken, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    outcome: Outcome
    marks: tuple[Mark, ...]
    via: str = ""
    note: str = ""


class Producer(Protocol):
    name: str
    guarantee: Guarantee

    def send(self, place: Place, values: Sequence[int]) -> Sent: ...

    def transaction(self, sends: Sequence[tuple[Place, int]], *, commit: bool, between: Callable[[], None]) -> Sent:
        """`between` runs when all is sent, before the end."""

    def close(self) -> None: ...


class ShareConsumer(Protocol):
    name: str

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def take(self, *, accept: bool) -> Given:
        """Records, all of them accepted, or all of them released for others."""

    def close(self) -> None: ...


class Consumer(Protocol):
    name: str

    def assign(self, places: Sequence[Place]) -> None:
        """From the first record of each."""

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def poll(self) -> Polled: ...

    def commit(self) -> Committed: ...

    def close(self) -> None: ...
