"""Begins and ends faults, one after the other, in an order that a seed gives."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judge.faults.fault import Fault
from judge.history import Kind, Outcome
from judge.recorder import Recorder

SHORTEST_S = 0.5
CALM_S = (1.0, 5.0)
"""Between two faults."""


@dataclass(slots=True)
class Nemesis:
    faults: Sequence[Fault]
    chance: random.Random
    recorder: Recorder
    say: Callable[[str], None] = lambda text: None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(self.chance.uniform(*CALM_S)):
            fault = self.chance.choice(self.faults)
            self.one(fault, self.chance.uniform(SHORTEST_S, fault.longest_s))

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
