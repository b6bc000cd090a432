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


@dataclass(slots=True)
class Revisions:
    pages: Mapping[str, str]
    """A gateway's address to its page of metrics."""
    stop: threading.Event = field(default_factory=threading.Event)
    _samples: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def during(self, via: str, start: float, end: float) -> int:
        """The one that ran there from before `start` until after `end` (`time.monotonic`); 0: several, or not known."""
        samples = self._samples.get(via, [])
        before = bisect_right(samples, (start, -1)) - 1
        after = bisect_left(samples, (end, -1))
        if before < 0 or after >= len(samples):
            return 0
        seen = {revision for _, revision in samples[before : after + 1]}
        return seen.pop() if len(seen) == 1 else 0

    def run(self) -> None:
        while not self.stop.wait(SAMPLE_S):
            for gateway, page in self.pages.items():
                with contextlib.suppress(OSError):
                    began = time.monotonic()
                    with urllib.request.urlopen(page, timeout=ANSWER_S) as answer:
                        found = {int(float(each)) for each in REVISION.findall(answer.read().decode())}
                    # the workers of one gateway may differ for a moment; `began` and the end bound when it was true
                    value = found.pop() if len(found) == 1 else 0
                    self._samples[gateway] += [(began, value), (time.monotonic(), value)]
