"""Begins and ends faults in an order that a seed gives: several at a time, of which no two disturb the same part."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judge.faults.fault import Fault
from judge.history import Kind, Outcome
from judge.recorder import Recorder

SHORTEST_S = 0.5
CALM_S = (0.5, 4.0)
"""Between two faults of one lane."""
AFTER_MOVE_S = 0.6
MOVE_WITHIN_S = 6.0


@dataclass(slots=True)
class Moves:
    """Tells lanes that a move begins."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _begun: int = 0

    def begin(self) -> None:
        with self._changed:
            self._begun += 1
            self._changed.notify_all()

    def next_within(self, seconds: float) -> None:
        with self._changed:
            seen = self._begun
            self._changed.wait_for(lambda: self._begun != seen, seconds)


@dataclass(slots=True)
class Nemesis:
    faults: Sequence[Fault]
    recorder: Recorder
    say: Callable[[str], None] = lambda text: None
    with_a_move: float = 0.0
    """The share of the faults that begin when a topic begins to move, or soon after."""
    stop: threading.Event = field(default_factory=threading.Event)
    moves: Moves = field(default_factory=Moves)
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, chance: random.Random) -> None:
        """One lane, until it is stopped."""
        while not self.stop.wait(chance.uniform(*CALM_S)):
            [fault] = chance.choices(self.faults, [each.weight for each in self.faults])
            for_s, soon = chance.uniform(SHORTEST_S, fault.longest_s), chance.uniform(0, AFTER_MOVE_S)
            if chance.random() < self.with_a_move:
                self.moves.next_within(MOVE_WITHIN_S)
                if self.stop.wait(soon):
                    return
            self.take_part(fault, for_s)

    def take_part(self, fault: Fault, for_s: float) -> None:
        """The fault from begin to end, unless another fault disturbs its parts."""
        if self._take(fault):
            try:
                self.one(fault, for_s)
            finally:
                with self._lock:
                    self._busy -= fault.parts

    def _take(self, fault: Fault) -> bool:
        with self._lock:
            if self._busy & fault.parts:
                return False
            self._busy |= fault.parts
            return True

    def one(self, fault: Fault, for_s: float) -> None:
        start = self.recorder.now()
        outcome, note = Outcome.OK, fault.name
        for step in (fault.begin, lambda: self.stop.wait(for_s), fault.end):
            try:
                step()
            except Exception as error:  # noqa: BLE001  # the others go on, and the report tells of it
                outcome, note = Outcome.INFO, f"{note}: {error!r}"
        self.say(f"{start:.1f} s: {note}, for {self.recorder.now() - start:.1f} s")
        self.recorder.add("nemesis", Kind.FAULT, outcome, start, note=note)
