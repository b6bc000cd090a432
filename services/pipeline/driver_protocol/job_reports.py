"""Reports of a continuous job's progress to `serve`, which shows them as metrics: lines of JSON on stdout.

`serve` also reads the reports of replays there. A job that runs by hand sends no reports; its log has the progress.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

MARK = "job_report"


@dataclass(frozen=True, slots=True)
class JobReport:
    """A report about the time since the last report."""

    job: str
    cluster: str = ""
    """The cluster that the job reads, if the job reads each cluster by itself."""
    records: int = 0
    """Records that were written, including the refused ones."""
    refused: int = 0
    failures: int = 0
    """Failures that the job has retried."""
    behind: int | None = None
    """Records that are not yet written; None if unknown."""
    spare: int | None = None
    """Records that retention can delete before it deletes an unwritten record; None if no record waits."""
    apart: Mapping[str, str] | None = None
    """Topics that are set apart, with the reason; None if the report does not say."""
    lost: Sequence[str] = field(default_factory=list)
    """Topics in `apart` that lost records to retention: an operator may accept the loss."""
    stuck_s: float = 0.0
    """Seconds that a batch has worked without progress."""
    complete_until: float | None = None
    """Unix time up to which all records are written; None if unknown."""

    def with_what_stays_of(self, before: JobReport) -> JobReport:
        """This report; fields that it leaves open come from the earlier report."""
        if self.behind is not None:
            return self
        stays = replace(self, behind=before.behind, spare=before.spare, complete_until=before.complete_until)
        return stays if self.apart is not None else replace(stays, apart=before.apart, lost=before.lost)

    def to_line(self) -> str:
        return json.dumps({MARK: asdict(self)})


def of_line(line: bytes) -> JobReport | None:
    """Parses a line into a report; None for any other line."""
    if not line.startswith(f'{{"{MARK}"'.encode()):
        return None
    try:
        return JobReport(**json.loads(line)[MARK])
    except (ValueError, TypeError):
        return None


class _Listener:
    """Whether `serve` listens to this process."""

    is_there = False


def begin() -> None:
    """Notes that `serve` listens to this process."""
    _Listener.is_there = True


def is_heard() -> bool:
    """Whether serve listens to this process."""
    return _Listener.is_there


def tell(report: JobReport) -> None:
    """Sends a report to `serve`, if it listens."""
    say(report.to_line())


def say(line: str) -> None:
    """Sends a line to `serve`, if it listens."""
    if _Listener.is_there:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
