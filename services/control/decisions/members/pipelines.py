"""The state of the pipelines' continuous jobs, from their last reports. In memory; it heals with the next report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from mesh.rpc import pipelines
from services.control.decisions.members.members import EXPIRY
from services.control.steady_clock import Clock, steady_clock

MAX_JOBS = 20
"""The most jobs of one pipeline; there are three kinds."""
MAX_APART = 100
"""The most topics of a job that control keeps."""
LONGEST_PROBLEM = 1_000
LONGEST_NAME = 600
"""Characters of a topic with its cluster."""


@dataclass(frozen=True, slots=True)
class _Told:
    jobs: tuple[pipelines.JobStatus, ...]
    time: datetime


class Pipelines:
    """The last report of each pipeline; `is_alive` says whether control hears of a pipeline."""

    def __init__(self, is_alive: Callable[[str], bool], clock: Clock = steady_clock) -> None:
        self._is_alive = is_alive
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def report(self, pipeline: str, jobs: Iterable[pipelines.JobStatus]) -> None:
        """Takes the state of all jobs of a pipeline (pipelines/{pipeline}) of which control has just heard."""
        self._told = {name: told for name, told in self._told.items() if self._is_alive(name)}
        self._told[pipeline] = _Told(tuple(_kept(each) for each in list(jobs)[:MAX_JOBS]), self._clock())

    def jobs(self) -> list[pipelines.ListedJob]:
        """The jobs of all pipelines that control hears of, by pipeline and name."""
        found = []
        for name, told in sorted(self._told.items()):
            if not self._is_alive(name) or self._clock() - told.time > EXPIRY:
                continue
            for status in sorted(told.jobs, key=lambda each: each.job):
                listed = pipelines.ListedJob(pipeline=name, status=status)
                listed.status_time.FromDatetime(told.time)
                found.append(listed)
        return found


def _kept(status: pipelines.JobStatus) -> pipelines.JobStatus:
    kept = pipelines.JobStatus()
    kept.CopyFrom(status)
    kept.problem = kept.problem[:LONGEST_PROBLEM]
    del kept.apart[MAX_APART:]
    for each in kept.apart:
        each.topic, each.problem = each.topic[:LONGEST_NAME], each.problem[:LONGEST_PROBLEM]
    return kept
