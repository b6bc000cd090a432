"""The interface between the code that judges a record and the code that moves it: a record in, writes out. No I/O.

The mover reads records, asks the rule's plan for the writes of each record, and writes them together with its position.
A plan decides and never writes. Mirrors that neither filter nor change anything have no plan: their records are passed
on without being asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from mesh.judging.records import Content, Headers, Record

BY_KEY = -1
"""In place of a partition: it follows from the key, as Kafka's own clients choose it."""


class Fate(Enum):
    """The counter of a write."""

    WRITTEN = "written"
    DEAD = "dead"


class Write(NamedTuple):
    """One record to be written. Provenance is the mover's; a plan leaves `mesh-` headers as they are."""

    cluster: str
    """cluster_name."""
    topic: str
    partition: int
    """BY_KEY, or a number."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Milliseconds since 1970."""
    fate: Fate = Fate.WRITTEN


class NotNowError(Exception):
    """A service that judging needs does not answer, such as a schema registry that is down; the message names it.

    The rule waits with this as its problem, and asks again of the same record until it can be said.
    """


class Message(Record, Protocol):
    """A message from a consumer: a record, or an error event."""

    def error(self) -> Any | None: ...


class Judge(Protocol):
    """A compiled filter: whether a record is taken."""

    def __call__(self, record: Record) -> bool:
        """UnjudgedError: it can't be said."""


class Transformer(Protocol):
    """A compiled chain of transformations."""

    def __call__(self, content: Content) -> Content:
        """The changed content; headers are not changed in place. UnjudgedError: it can't be applied."""


class Plan(Protocol):
    """The output of a rule for its records."""

    def __call__(self, record: Record) -> Sequence[Write]:
        """Zero or more writes, the same whenever asked. UnjudgedError: the rule stops here. NotNowError: it waits."""
