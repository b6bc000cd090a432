"""The history of a run, as values: each operation with its process, its time, its steps and its outcome.

Checkers are functions over a `History`. A history is a file of JSON lines, so a run can be checked again without Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

SPECIAL = ("client", "via", "revision", "rebalanced", "note", "group")
"""Fields of an operation that stand in its JSON only where they say something."""


class Kind(StrEnum):
    """The kind of an operation."""

    SEND = "send"
    POLL = "poll"
    TXN = "txn"
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"
    CRASH = "crash"
    COMMIT = "commit"
    """A consumer stores its position."""
    COMMITTED = "committed"
    """A stored position is read; `via` says where."""
    MOVE = "move"
    """An operator sends a topic to another cluster."""
    EDIT = "edit"
    """An operator changes rules that lead none of the run's topics."""
    FAULT = "fault"
    UNMARKED = "unmarked"
    """A broker said that it writes no marker of a transaction to these partitions. The note is the transaction's
    process."""
    RECOVER = "recover"
    """A probe after the last fault: it has to succeed."""
    TAKE = "take"
    """A member of a share group is given records, and settles them."""
    DRAINED = "drained"
    """A share group was asked for more until it was given no more."""
    SWEEP = "sweep"
    """A read of whole logs after the run, from the first record to the end."""


class Outcome(StrEnum):
    """Jepsen's three: it happened, it provably did not happen, nobody knows."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Guarantee(StrEnum):
    """Kafka's guarantee for the producer of an operation."""

    PLAIN = "plain"
    """A repeated send may be stored twice."""
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One log: a partition, and the cluster that holds it where a mesh has several."""

    topic: str
    partition: int
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}" + (f"@{self.cluster}" if self.cluster else "")

    @property
    def anywhere(self) -> Place:
        """The partition as clients name it."""
        return Place(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Send:
    place: Place
    value: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    place: Place
    records: tuple[tuple[int, int], ...]
    """Offset and value of each record, in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records that a share group gave to one of its members. They come in no order."""

    place: Place
    records: tuple[tuple[int, int, int], ...]
    """Offset, value, and how often the group has given the record out."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A position that a group stores, or that a reader of the group got."""

    group: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True)
class Moved:
    topic: str
    target: str


Step = Send | Poll | Taken | Mark | Moved


@dataclass(frozen=True, slots=True)
class Operation:
    index: int
    process: str
    kind: Kind
    outcome: Outcome
    start: float
    """Seconds since the run began, on one clock for all processes."""
    end: float
    steps: tuple[Step, ...] = ()
    guarantee: Guarantee = Guarantee.IDEMPOTENT
    client: str = ""
    via: str = ""
    """The gateway or broker that it was sent to."""
    revision: int = 0
    """The routing table that the gateway ran from before the operation began until after it ended; 0: several, or not
    known. For a move: the table that the move made."""
    rebalanced: bool = False
    """Partitions were taken or given since the last poll of this process."""
    note: str = ""
    group: str = ""
    """The share group of the process."""

    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    def polls(self) -> Iterator[Poll]:
        return (step for step in self.steps if isinstance(step, Poll))

    def taken(self) -> Iterator[Taken]:
        return (step for step in self.steps if isinstance(step, Taken))

    def marks(self) -> Iterator[Mark]:
        return (step for step in self.steps if isinstance(step, Mark))

    def moves(self) -> Iterator[Moved]:
        return (step for step in self.steps if isinstance(step, Moved))

    def overlaps(self, start: float, end: float) -> bool:
        return self.start <= end and start <= self.end


@dataclass(frozen=True, slots=True)
class History:
    """Operations in the order of their start."""

    operations: tuple[Operation, ...]
    seed: int = 0
    system: str = ""

    def of_kind(self, *kinds: Kind) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind in kinds)

    def only(self, indices: Iterable[int]) -> History:
        kept = set(indices)
        return replace(self, operations=tuple(each for each in self.operations if each.index in kept))

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"seed": self.seed, "system": self.system}) + "\n")
            file.writelines(json.dumps(as_json(operation)) + "\n" for operation in self.operations)


def history(operations: Iterable[Operation], seed: int = 0, system: str = "") -> History:
    return History(tuple(sorted(operations, key=lambda each: (each.start, each.index))), seed, system)


def read(path: Path) -> History:
    with path.open(encoding="utf-8") as file:
        head = json.loads(next(file))
        return history((from_json(json.loads(line)) for line in file), head["seed"], head["system"])


def as_json(operation: Operation) -> dict[str, Any]:
    """Only what differs from an operation without anything special."""
    found: dict[str, Any] = {
        "index": operation.index,
        "process": operation.process,
        "kind": operation.kind,
        "outcome": operation.outcome,
        "start": round(operation.start, 6),
        "end": round(operation.end, 6),
        "guarantee": operation.guarantee,
        "steps": [_step_as_json(step) for step in operation.steps],
    }
    rest = {name: getattr(operation, name) for name in SPECIAL}
    return found | {name: value for name, value in rest.items() if value}


def from_json(fields: dict[str, Any]) -> Operation:
    return Operation(
        index=fields["index"],
        process=fields["process"],
        kind=Kind(fields["kind"]),
        outcome=Outcome(fields["outcome"]),
        start=fields["start"],
        end=fields["end"],
        steps=tuple(_step_from_json(step) for step in fields["steps"]),
        guarantee=Guarantee(fields["guarantee"]),
        **{name: fields[name] for name in SPECIAL if name in fields},
    )


def _step_as_json(step: Step) -> list[Any]:
    match step:
        case Send(place, value, offset):
            return ["send", *_place(place), value, offset]
        case Poll(place, records):
            return ["poll", *_place(place), [list(record) for record in records]]
        case Taken(place, records):
            return ["taken", *_place(place), [list(record) for record in records]]
        case Mark(group, place, offset):
            return ["mark", *_place(place), group, offset]
        case Moved(topic, target):
            return ["moved", topic, target]


def _place(place: Place) -> tuple[str, int, str]:
    return place.topic, place.partition, place.cluster


def _step_from_json(fields: list[Any]) -> Step:
    what, *rest = fields
    if what == "moved":
        return Moved(*rest)
    place, rest = Place(*rest[:3]), rest[3:]
    if what == "send":
        return Send(place, *rest)
    if what == "poll":
        return Poll(place, tuple((offset, value) for offset, value in rest[0]))
    if what == "taken":
        return Taken(place, tuple((offset, value, count) for offset, value, count in rest[0]))
    return Mark(rest[0], place, rest[1])
