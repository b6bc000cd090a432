"""Compares what producers were told with what the clusters hold.

Ids look like `java-17`: the producer and the number of the record in its own order. The ledger asks of the records of
one topic, wherever they lie:
1. every acknowledged id is stored, on the partition that the acknowledgement named;
2. no id is stored twice, be it on one cluster or on two;
3. what is stored was acknowledged (unless the test made producers fail, and says so);
4. within a partition of a cluster, the records of each producer lie in the order in which it sent them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

EXAMPLES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Acked:
    """What a producer was told."""

    UNKNOWN_OFFSET: ClassVar[int] = -1

    id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """What a cluster holds."""

    id: str
    cluster: str
    partition: int
    offset: int

    @property
    def sequence(self) -> tuple[str, int]:
        """The producer, and the place in its order."""
        producer, _, number = self.id.rpartition("-")
        return producer, int(number)

    def __str__(self) -> str:
        return f"{self.id} at {self.cluster}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One kind of disagreement, with all its cases."""

    what: str
    cases: Sequence[str]

    def __str__(self) -> str:
        shown = "\n".join(f"    {case}" for case in self.cases[:EXAMPLES_SHOWN])
        left = len(self.cases) - EXAMPLES_SHOWN
        return f"{len(self.cases)} {self.what}:\n{shown}" + (f"\n    and {left} more" if left > 0 else "")


def check(acked: Sequence[Acked], stored: Sequence[Stored], *, allow_unacknowledged: bool = False) -> None:
    """Fails with a list of all differences."""
    differences = compare(acked, stored)
    if allow_unacknowledged:
        differences = [difference for difference in differences if difference.what != UNACKNOWLEDGED]
    if differences:
        counts = Counter(record.cluster for record in stored)
        held = ", ".join(f"{count} on {cluster}" for cluster, count in sorted(counts.items())) or "none"
        told = "\n".join(map(str, differences))
        raise AssertionError(f"{len(acked)} records acknowledged, stored: {held}\n{told}")


LOST = "acknowledged but stored nowhere"
DUPLICATE = "stored more than once"
UNACKNOWLEDGED = "stored but never acknowledged"
MISPLACED = "stored on another partition than acknowledged"
DISORDER = "stored after a later record of the same producer"


def compare(acked: Sequence[Acked], stored: Sequence[Stored]) -> list[Difference]:
    """All differences, the worst first; none if the ledger balances."""
    places: dict[str, list[Stored]] = defaultdict(list)
    for record in stored:
        places[record.id].append(record)
    acked_ids = {ack.id for ack in acked}
    found: list[tuple[str, Iterable[str]]] = [
        (LOST, (f"{ack.id}, acknowledged as {ack.partition}@{ack.offset}" for ack in acked if ack.id not in places)),
        (DUPLICATE, (", ".join(map(str, copies)) for copies in places.values() if len(copies) > 1)),
        (MISPLACED, _misplaced(acked, places)),
        (DISORDER, _disorder(stored)),
        (UNACKNOWLEDGED, (str(copies[0]) for identifier, copies in places.items() if identifier not in acked_ids)),
    ]
    return [Difference(what, cases) for what, each in found if (cases := list(each))]


def _misplaced(acked: Sequence[Acked], places: dict[str, list[Stored]]) -> Iterable[str]:
    for ack in acked:
        wrong = [record for record in places.get(ack.id, ()) if record.partition != ack.partition]
        if wrong:
            yield f"{wrong[0]}, acknowledged as {ack.partition}@{ack.offset}"


def _disorder(stored: Sequence[Stored]) -> Iterable[str]:
    last: dict[tuple[str, int, str], Stored] = {}
    for record in sorted(stored, key=lambda record: (record.cluster, record.partition, record.offset)):
        producer, number = record.sequence
        line = record.cluster, record.partition, producer
        before = last.get(line)
        # The same number again is a duplicate, which is told already.
        if before is not None and number < before.sequence[1]:
            yield f"{record}, after {before}"
        else:
            last[line] = record
