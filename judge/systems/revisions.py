"""Which routing table ran at which gateway, and when: looked up a few times a second."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import urllib.request
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

SAMPLE_S = 0.25
ANSWER_S = 1.0
REVISION = re.compile(r"^kafka_mesh_gateway_table_revision(?:{[^}]*})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Look:
    """The revision was there at some moment between the two times."""

    began: float
    ended: float
    revision: int
    """0: workers of the gateway differed."""


@dataclass(slots=True)
class Revisions:
    pages: Mapping[str, str]
    """A gateway's address to its page of metrics."""
    stop: threading.Event = field(default_factory=threading.Event)
    _looks: dict[str, list[Look]] = field(default_factory=lambda: defaultdict(list))

    def during(self, via: str, start: float, end: float) -> int:
        """The one that ran there from before `start` until after `end` (`time.monotonic`); 0: several, or not known."""
        looks = self._looks.get(via, [])
        before = bisect_right(looks, start, key=lambda look: look.ended) - 1
        after = bisect_left(looks, end, key=lambda look: look.began)
        if before < 0 or after >= len(looks):
            return 0
        seen = {look.revision for look in looks[before : after + 1]}
        return seen.pop() if len(seen) == 1 else 0

    def saw(self, via: str, look: Look) -> None:
        """Adds an observation of a gateway; observations of one gateway come in the order of time."""
        self._looks[via].append(look)

    def run(self) -> None:
        while not self.stop.wait(SAMPLE_S):
            for gateway, page in self.pages.items():
                with contextlib.suppress(OSError):
                    began = time.monotonic()
                    with urllib.request.urlopen(page, timeout=ANSWER_S) as answer:
                        found = {int(float(each)) for each in REVISION.findall(answer.read().decode())}
                    revision = found.pop() if len(found) == 1 else 0
                    self.saw(gateway, Look(began, time.monotonic(), revision))
