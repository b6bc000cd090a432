"""The messages on the line between the supervisor and a worker. No I/O.

Down go orders, one byte each. With `TELL_METRICS` comes a socket for the answer; with `HEAR_FAULTS` one to read from.
Up come words, a line of JSON each.
"""

import json
from dataclasses import dataclass
from struct import Struct as Packing
from typing import Final, Self

from mesh.lifecycle import Phase

STOP: Final = b"S"
TELL_METRICS: Final = b"M"
HEAR_FAULTS: Final = b"F"
"""The listeners that the supervisor could not open: an object of JSON, from name to reason."""

WORD_EVERY_S: Final = 0.2
"""How often a worker looks whether it has something new to say."""
LENGTH: Final = Packing(">I")
"""Before each family of metrics, a pickle; 0 after the last one."""


Doors = tuple[tuple[str, str, int], ...]
"""Listeners by name, host and port."""


@dataclass(frozen=True, slots=True)
class Word:
    """The state of a worker."""

    phase: Phase
    reason: str
    taken: int
    """Connections that came through the door."""
    open: int
    policy: int = 0
    """The revision of the policy by which the worker has its listeners."""
    doors: Doors = ()
    """The listeners that the supervisor shall open for it."""

    def line(self) -> bytes:
        told = {
            "phase": self.phase.value,
            "reason": self.reason,
            "taken": self.taken,
            "open": self.open,
            "policy": self.policy,
            "doors": self.doors,
        }
        return f"{json.dumps(told)}\n".encode()

    @classmethod
    def read(cls, line: bytes) -> Self:
        told = json.loads(line)
        doors = tuple((name, host, port) for name, host, port in told["doors"])
        return cls(Phase(told["phase"]), told["reason"], told["taken"], told["open"], told["policy"], doors)
