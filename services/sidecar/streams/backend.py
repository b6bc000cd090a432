"""How a topology asks the backend, and what the answers mean: a record that goes on, others in its place, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from services.sidecar.delivering.records import Verdict
from services.sidecar.streams.records import StreamRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """What the backend says of one record."""

    becomes: tuple[tuple[Any, Any], ...] = ()
    """Keys and values that go on in its place."""
    failed: Verdict | None = None
    """That it is a dead letter, and why."""


class Backend(Protocol):
    """Whom hooks ask, on the event loop."""

    async def ask(self, path: str, records: Sequence[StreamRecord]) -> Sequence[Answer]:
        """An answer for each record of one partition, when all of them have one; it may take as long as it does."""
