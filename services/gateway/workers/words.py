"""The messages on the line between the supervisor and a worker. No I/O.

Down go orders, one byte each; with `TELL_METRICS` comes a socket for the answer. Up come words, a line of JSON each.
"""

import json
from dataclasses import dataclass
from struct import Struct as Packing
from typing import Final, Self

from mesh.lifecycle import Phase

STOP: Final = b"S"
TELL_METRICS: Final = b"M"

WORD_EVERY_S: Final = 0.2
"""How often a worker looks whether it has something new to say."""
LENGTH: Final = Packing(">I")
"""Before each family of metrics, a pickle; 0 after the last one."""


@dataclass(frozen=True, slots=True)
class Word:
    """The state of a worker."""

    phase: Phase
    reason: str
    taken: int
    """Connections that came through the door."""
    open: int

    def line(self) -> bytes:
        told = {"phase": self.phase.value, "reason": self.reason, "taken": self.taken, "open": self.open}
        return f"{json.dumps(told)}\n".encode()

    @classmethod
    def read(cls, line: bytes) -> Self:
        told = json.loads(line)
        return cls(Phase(told["phase"]), told["reason"], told["taken"], told["open"])
