"""Which of two processes of the same sidecar counts: the process that began later.

A sidecar says in each message when it began, so control need not remember it. A restarted control may hear the older
process first. Then it takes the side of the younger process as soon as that process sends a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from services.control.domain.errors import InvalidField

_TEXT = re.compile(r"(\d{1,18})-\S{1,80}")


@total_ordering
@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process of a sidecar: when it began, in milliseconds since the epoch, and its whole text."""

    began_ms: int
    text: str

    def __lt__(self, other: Incarnation) -> bool:
        return (self.began_ms, self.text) < (other.began_ms, other.text)


EARLIER_RELEASE = Incarnation(0, "")
"""A sidecar of a release that names no incarnation. It never has to give way, and no other process gives way to it."""


def incarnation_of(text: str) -> Incarnation:
    """InvalidField when the text can't be compared with another incarnation."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidField(
            "incarnation",
            f"{text!r} does not tell when the process began; milliseconds since the epoch and some random text are "
            "needed, as in 1795305600000-x7Hq",
        )
    return Incarnation(int(found[1]), text)
