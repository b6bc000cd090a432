"""The metrics of `serve`. `docs/reference/pipeline-metrics.md` lists these with their meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prometheus_client import Counter, Gauge

from services.pipeline.driver_protocol.job_reports import JobReport

_PREFIX = "kafka_mesh_pipeline_"

drivers = Gauge(f"{_PREFIX}drivers", "Drivers that run.", ["job"])
driver_starts = Counter(f"{_PREFIX}driver_starts", "Drivers that were started.", ["job"])
driver_deaths = Counter(f"{_PREFIX}driver_deaths", "Drivers that ended unfinished without a request to stop.", ["job"])
driver_hangs = Counter(
    f"{_PREFIX}driver_hangs", "Drivers killed because they reported no progress for DRIVER_SILENCE_S.", ["job"]
)
job_up = Gauge(f"{_PREFIX}job_up", "1 while a continuous job runs, 0 while it waits for its restart.", ["job"])
replays = Gauge(f"{_PREFIX}replays", "Replays of this member: running, cancelling, held, dropped.", ["state"])
following = Gauge(f"{_PREFIX}following", "1 while control can send orders to this member.")
reports = Counter(f"{_PREFIX}reports", "Reports to control: ok, failed (sent again), refused.", ["outcome"])
reports_waiting = Gauge(f"{_PREFIX}reports_waiting", "Replays whose newest report control has not got.")

_OF_JOBS = ["job", "cluster"]
_apart: dict[str, set[str]] = {}
"""Topics of each job that the metrics show as set apart."""
job_records = Counter(f"{_PREFIX}job_records", "Records that continuous jobs have written.", _OF_JOBS)
job_refused = Counter(
    f"{_PREFIX}job_refused", "Malformed records among the records that continuous jobs have read.", _OF_JOBS
)
job_failures = Counter(
    f"{_PREFIX}job_failures",
    "Failures that the same driver has retried: a cluster or PostgreSQL that is away.",
    _OF_JOBS,
)
job_behind = Gauge(f"{_PREFIX}job_behind_records", "Records that exist and that the job has not written.", _OF_JOBS)
job_spare = Gauge(
    f"{_PREFIX}job_retention_distance_records",
    "Records that retention can delete before it deletes an unwritten one. Below 0: it deleted some.",
    _OF_JOBS,
)
job_apart = Gauge(
    f"{_PREFIX}job_topic_apart", "1 for a topic that a job sets apart because of a problem.", ["job", "topic"]
)
job_stuck = Gauge(f"{_PREFIX}job_stuck_seconds", "How long a batch has worked without progress.", _OF_JOBS)
job_complete_until = Gauge(
    f"{_PREFIX}job_complete_until_seconds", "Unix time up to which the job has written all records.", _OF_JOBS
)


def _note_apart(job: str, apart: Mapping[str, str]) -> None:
    for topic in _apart.get(job, set()) - apart.keys():
        job_apart.remove(job, topic)
    _apart[job] = set(apart)
    for topic in apart:
        job_apart.labels(job, topic).set(1)


def note(report: JobReport) -> None:
    """Adds a driver's report to the metrics of its job."""
    labels = report.job, report.cluster
    job_records.labels(*labels).inc(report.records)
    job_refused.labels(*labels).inc(report.refused)
    job_failures.labels(*labels).inc(report.failures)
    if report.behind is not None:
        job_behind.labels(*labels).set(report.behind)
    job_stuck.labels(*labels).set(report.stuck_s)
    if report.behind is not None:
        job_spare.labels(*labels).set(math.inf if report.spare is None else report.spare)
    if report.apart is not None:
        _note_apart(report.job, report.apart)
    if report.complete_until is not None:
        job_complete_until.labels(*labels).set(report.complete_until)
