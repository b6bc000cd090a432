"""Losses that an operator accepts: `serve` sends lines of JSON to the driver of a continuous job, which answers.

The lines of `serve` go to the driver's stdin, the answers come from its stdout.

1. An acceptance covers one topic, and the loss that the job finds at its next check. A later loss needs another
   acceptance.
2. `serve` sends an acceptance to each new driver until a driver answers. So a killed driver loses no acceptance. If the
   loss is already given up, the next driver answers with that.
3. A job does not begin with an acceptance that has expired: control has reported to the operator that nobody carried
   the acceptance out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from services.pipeline.driver_protocol import job_reports
from services.pipeline.kafka.positions import Span

ASKED, ANSWERED = "accept_loss", "accepted_loss"
MOST_SPANS = 10
"""The most spans or topics that one answer names. The answer gives only the number of the others."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An operator's order to accept a loss."""

    order: str
    """The order's resource name: orders/{order}."""
    topic: str
    """The topic, as the job names it."""
    until: float
    """Unix time at which it expires."""

    def to_line(self) -> str:
        return json.dumps({ASKED: asdict(self)})


@dataclass(frozen=True, slots=True)
class Answer:
    """The job's answer to an acceptance."""

    order: str
    is_done: bool
    text: str

    def to_line(self) -> str:
        return json.dumps({ANSWERED: asdict(self)})


def of_line(line: str) -> Acceptance | None:
    """Parses a line into an acceptance; None for any other line."""
    try:
        return Acceptance(**json.loads(line)[ASKED])
    except (ValueError, TypeError, KeyError):
        return None


def answer_of_line(line: bytes) -> Answer | None:
    """Parses a line into an answer; None for any other line."""
    if not line.startswith(f'{{"{ANSWERED}"'.encode()):
        return None
    try:
        return Answer(**json.loads(line)[ANSWERED])
    except (ValueError, TypeError):
        return None


class Acceptances:
    """The acceptances that a job has not answered yet; one thread adds them, another thread reads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Acceptance] = {}
        self._news = False

    @classmethod
    def of_serve(cls) -> Acceptances:
        """The acceptances that `serve` sends on stdin; none if the job was started by hand."""
        made = cls()
        if job_reports.is_heard():
            threading.Thread(target=made.listen, args=(sys.stdin,), name="acceptances", daemon=True).start()
        return made

    def listen(self, lines: Iterable[str]) -> None:
        """Takes the acceptances in the lines until the lines end."""
        for line in lines:
            if (acceptance := of_line(line)) is not None:
                self.take(acceptance)

    def take(self, acceptance: Acceptance) -> None:
        with self._lock:
            self._open[acceptance.order] = acceptance
            self._news = True

    @property
    def has_news(self) -> bool:
        """Whether an acceptance has arrived since the last call of `open_for`."""
        return self._news

    def open_for(self, topics: Collection[str]) -> dict[str, list[Acceptance]]:
        """Returns the open acceptances by topic.

        An acceptance for a topic that the job does not have is answered at once. An expired acceptance is dropped.
        """
        with self._lock:
            self._news = False
            now = time.time()
            self._open = {order: each for order, each in self._open.items() if now < each.until}
            found = list(self._open.values())
        mine: dict[str, list[Acceptance]] = {}
        for each in found:
            if each.topic in topics:
                mine.setdefault(each.topic, []).append(each)
            else:
                named = ", ".join(sorted(topics)[:MOST_SPANS]) or "none"
                self.answer(each, f"topic {each.topic} is none of this job's (it reads: {named})", is_done=False)
        return mine

    def answer(self, acceptance: Acceptance, text: str, *, is_done: bool = True) -> None:
        """Sends `serve` the outcome of the acceptance."""
        with self._lock:
            self._open.pop(acceptance.order, None)
        job_reports.say(Answer(acceptance.order, is_done, text).to_line())


def given_up(spans: Collection[Span]) -> str:
    """A sentence that names the offsets that the acceptance of a loss gives up."""
    if not spans:
        return "nothing is lost there: it goes on, and there is nothing to accept"
    shown = sorted(spans, key=lambda span: (span.topic, span.partition))[:MOST_SPANS]
    named = ", ".join(f"{span} offsets {span.start} to {span.end - 1}" for span in shown)
    more = f" and {len(spans) - len(shown)} partitions more" if len(spans) > len(shown) else ""
    return f"goes on without what retention took: {named}{more}"
