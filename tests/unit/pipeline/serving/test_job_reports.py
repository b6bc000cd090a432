"""What drivers of continuous jobs say of themselves becomes metrics of serve."""

from __future__ import annotations

import subprocess
import sys

from prometheus_client import REGISTRY

from services.pipeline.job_reports import JobReport, of_line
from services.pipeline.serving.driver import Command, Driver

SAYS = """
import sys
from services.pipeline import job_reports
job_reports.begin()
for _ in range(2):
    job_reports.tell(job_reports.JobReport(sys.argv[1], "c1", 5, 1, 2, 30, 1_795_300_000.0))
job_reports.tell(job_reports.JobReport(sys.argv[1], "c1"))
"""


def value(name: str, job: str) -> float | None:
    return REGISTRY.get_sample_value(f"kafka_mesh_pipeline_job_{name}", {"job": job, "cluster": "c1"})


async def test_serve_shows_how_far_a_job_is() -> None:
    job = "job of this test"
    driver = await Driver.started(Command("audit", "audit", (job,), program=(sys.executable, "-c", SAYS)))
    assert (await driver.run()).code == 0
    assert [value(name, job) for name in ("records_total", "refused_total", "failures_total")] == [10, 2, 4]
    assert (value("behind_records", job), value("complete_until_seconds", job)) == (30, 1_795_300_000)


def test_other_lines_are_none_of_these_reports() -> None:
    report = JobReport("traffic", behind=3)
    assert of_line(report.to_line().encode()) == report
    for line in (b"", b"3 counters of 2 reports", b'{"name": "replays/a"}', b'{"job_report": {"shape": 1}}'):
        assert of_line(line) is None


def test_who_runs_a_job_by_hand_is_told_nothing() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SAYS.replace("job_reports.begin()", ""), "job"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert told.stdout == b""
