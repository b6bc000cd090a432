"""Why a record is a dead letter, as its headers say it: see docs/concepts/dead-letters.md. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.judging.records import Record

TRACE = "StackTrace"
MOST_TEXT = 200
"""Characters of a header in a list."""


@dataclass(frozen=True, slots=True)
class Letter:
    """The facts that a sidecar adds. A dead letter of another writer may have none: empty, or None."""

    reason: str = ""
    attempts: str = ""
    group: str = ""
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    trace: str = ""

    @property
    def first_line(self) -> str:
        """The first line of the stack trace that has a text."""
        return next((line.strip() for line in self.trace.splitlines() if line.strip()), "")


def letter_of(record: Record) -> Letter:
    """The letter that a record's headers describe. If several headers have one name, the last one counts."""
    said = {name: (value or b"")[: 4 * MOST_TEXT].decode(errors="replace") for name, value in record.headers() or []}
    return Letter(
        said.get("dlq.reason", ""),
        said.get("dlq.attempts", ""),
        said.get("dlq.group", ""),
        said.get("dlq.topic", ""),
        _number(said.get("dlq.partition", "")),
        _number(said.get("dlq.offset", "")),
        said.get(TRACE, ""),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 else None
