"""Tells of moments when this machine was too busy to wake a thread in time: what fails then is nobody's fault."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from judge.history import Kind, Outcome
from judge.recorder import Recorder

EVERY_S = 0.1
LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class Machine:
    recorder: Recorder

    def run(self, stop: threading.Event) -> None:
        start = self.recorder.now()
        while not stop.wait(EVERY_S):
            late = self.recorder.now() - start - EVERY_S
            if late > LATE_S:
                note = f"the machine woke the judge {late:.1f} s late"
                self.recorder.add("machine", Kind.FAULT, Outcome.OK, start, note=note)
            start = self.recorder.now()
