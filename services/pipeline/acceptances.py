"""Losses that an operator accepts: lines of JSON on stdin by which serve tells the driver of a continuous job, and the
answers on stdout.

1. An acceptance is of one topic, and of the loss that there is when the job looks next. A later loss needs another one.
2. Serve tells an acceptance again to each new driver until it has an answer. So a driver that is killed in between
   loses none; the next one may find that the loss is behind it already, and then says so.
3. A job does not begin with an acceptance that has expired: control has told the operator that nobody carried it out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from services.pipeline import job_reports
from services.pipeline.positions import Span

ASKED, ANSWERED = "accept_loss", "accepted_loss"
MOST_SPANS = 10
"""Named in one answer; of more only their number is told."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What an operator has ordered."""

    order: str
    """orders/{order}."""
    topic: str
    """As the job names it."""
    until: float
    """Unix time at which it expires."""

    def to_line(self) -> str:
        return json.dumps({ASKED: asdict(self)})


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an acceptance."""

    order: str
    is_done: bool
    text: str

    def to_line(self) -> str:
        return json.dumps({ANSWERED: asdict(self)})


def of_line(line: str) -> Acceptance | None:
    """The acceptance that a line is; None for any other line."""
    try:
        return Acceptance(**json.loads(line)[ASKED])
    except (ValueError, TypeError, KeyError):
        return None


def answer_of_line(line: bytes) -> Answer | None:
    """The answer that a line is; None for any other line."""
    if not line.startswith(f'{{"{ANSWERED}"'.encode()):
        return None
    try:
        return Answer(**json.loads(line)[ANSWERED])
    except (ValueError, TypeError):
        return None


class Acceptances:
    """Those that a job has not answered yet; told by one thread, asked by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Acceptance] = {}
        self._news = False

    @classmethod
    def of_serve(cls) -> Acceptances:
        """Those that come on stdin; none where the job was started by hand."""
        made = cls()
        if job_reports.is_heard():
            threading.Thread(target=made.listen, args=(sys.stdin,), name="acceptances", daemon=True).start()
        return made

    def listen(self, lines: Iterable[str]) -> None:
        """Until the lines end."""
        for line in lines:
            if (acceptance := of_line(line)) is not None:
                self.take(acceptance)

    def take(self, acceptance: Acceptance) -> None:
        with self._lock:
            self._open[acceptance.order] = acceptance
            self._news = True

    @property
    def has_news(self) -> bool:
        """Whether one has come since `open_for` was asked last."""
        return self._news

    def open_for(self, topics: Collection[str]) -> dict[str, list[Acceptance]]:
        """By topic. A topic that is not one of the job's is answered at once; what has expired is forgotten."""
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
        """Tells serve what became of it."""
        with self._lock:
            self._open.pop(acceptance.order, None)
        job_reports.say(Answer(acceptance.order, is_done, text).to_line())


def given_up(spans: Collection[Span]) -> str:
    """What the acceptance of a loss gives up, as a sentence."""
    if not spans:
        return "nothing is lost there: it goes on, and there is nothing to accept"
    shown = sorted(spans, key=lambda span: (span.topic, span.partition))[:MOST_SPANS]
    named = ", ".join(f"{span} offsets {span.start} to {span.end - 1}" for span in shown)
    more = f" and {len(spans) - len(shown)} partitions more" if len(spans) > len(shown) else ""
    return f"goes on without what retention took: {named}{more}"
