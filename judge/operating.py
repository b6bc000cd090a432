"""The operator's changes during a run: topics move, rules come and go."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from judge.faults.nemesis import Moves
from judge.faults.stalls import Stalling
from judge.history import Kind, Moved, Outcome
from judge.plan import Dose
from judge.recorder import Recorder
from judge.systems.system import Edit, System

EVERY_S = (1.5, 7.0)


@dataclass(slots=True)
class Operating:
    system: System
    topics: Sequence[str]
    """Those that move."""
    recorder: Recorder
    moves: Moves
    dose: Dose
    stalling: Stalling | None = None

    def run(self, chance: random.Random, stop: threading.Event) -> None:
        edits = list(self.system.edits())
        while self.topics and not stop.wait(chance.uniform(*EVERY_S)):
            topic, target = chance.choice(self.topics), chance.choice(sorted(self.system.clusters))
            if edits and chance.random() < self.dose.edits:
                name, edit = edits[-1] if chance.random() < self.dose.rare else chance.choice(edits[:-1])
                self._edit(name, edit, chance)
            else:
                self.moves.begin()
                if self.stalling is not None and chance.random() < self.dose.stalls:
                    others = [each for each in sorted(self.system.clusters) if each != self.system.owner(topic)]
                    with self.stalling.behind_held(chance):
                        self.move(topic, chance.choice(others))
                else:
                    self.move(topic, target)

    def move(self, topic: str, target: str) -> str:
        """Moves the topic and returns the error; empty: the topic moved."""
        assert self.system.move is not None, "only where topics move"
        start, outcome, note, revision = self.recorder.now(), Outcome.OK, "", 0
        try:
            revision = self.system.move(topic, target)
        except (OSError, RuntimeError, TimeoutError) as error:
            outcome, note = Outcome.INFO, f"{target}: {error}"
        steps = [Moved(topic, target)]
        self.recorder.add("operator", Kind.MOVE, outcome, start, steps, note=note, revision=revision)
        return note

    def _edit(self, name: str, edit: Edit, chance: random.Random) -> None:
        start, outcome, note = self.recorder.now(), Outcome.OK, name
        try:
            edit(chance)
        except (OSError, RuntimeError, TimeoutError) as error:
            outcome, note = Outcome.INFO, f"{name}: {error}"
        self.recorder.add("operator", Kind.EDIT, outcome, start, note=note)
