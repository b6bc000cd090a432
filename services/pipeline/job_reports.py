"""How far a continuous job is, told to `serve`, which shows it as metrics: lines of JSON on stdout, where serve listens
for reports of replays too. Who runs a job by hand is not told: the log says what has been done.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

MARK = "job_report"


@dataclass(frozen=True, slots=True)
class JobReport:
    """Since the last one."""

    job: str
    cluster: str = ""
    """That it reads from, where it reads from each by itself."""
    records: int = 0
    """That were brought over, those that were refused among them."""
    refused: int = 0
    failures: int = 0
    """After which it tried again."""
    behind: int | None = None
    """Records that are there and not brought over; None where that is not known."""
    spare: int | None = None
    """Records that retention has still to take before it takes one that is not brought over; None where none waits."""
    apart: Mapping[str, str] | None = None
    """Topics that are set apart, and why; None where the report does not say."""
    lost: Sequence[str] = field(default_factory=list)
    """Those among them of which retention took records: an operator may accept that."""
    stuck_s: float = 0.0
    """How long a batch has been at work without progress."""
    complete_until: float | None = None
    """Unix time up to which all is brought over; None where that is not known."""

    def with_what_stays_of(self, before: JobReport) -> JobReport:
        """This report, with what the one before it said and this one leaves open."""
        if self.behind is not None:
            return self
        stays = replace(self, behind=before.behind, spare=before.spare, complete_until=before.complete_until)
        return stays if self.apart is not None else replace(stays, apart=before.apart, lost=before.lost)

    def to_line(self) -> str:
        return json.dumps({MARK: asdict(self)})


def of_line(line: bytes) -> JobReport | None:
    """The report that a line is; None for any other line."""
    if not line.startswith(f'{{"{MARK}"'.encode()):
        return None
    try:
        return JobReport(**json.loads(line)[MARK])
    except (ValueError, TypeError):
        return None


class _Listener:
    """Whether somebody listens to this process."""

    is_there = False


def begin() -> None:
    """Serve listens to this process."""
    _Listener.is_there = True


def is_heard() -> bool:
    """Whether serve listens to this process."""
    return _Listener.is_there


def tell(report: JobReport) -> None:
    """To whoever listens."""
    say(report.to_line())


def say(line: str) -> None:
    """A line to whoever listens."""
    if _Listener.is_there:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
