"""What drivers of continuous jobs say of themselves becomes metrics of serve."""

from __future__ import annotations

import subprocess
import sys

from prometheus_client import REGISTRY

from services.pipeline.driver_protocol.job_reports import JobReport, of_line
from services.pipeline.serving.driver import Command, Driver

SAYS = """
import sys
from services.pipeline.driver_protocol import job_reports
job_reports.begin()
for _ in range(2):
    job_reports.tell(job_reports.JobReport(sys.argv[1], "c1", 5, 1, 2, 30, complete_until=1_795_300_000.0))
job_reports.tell(job_reports.JobReport(sys.argv[1], "c1"))
"""


APART = "kafka_mesh_pipeline_job_topic_apart"


def value(name: str, job: str) -> float | None:
    return REGISTRY.get_sample_value(f"kafka_mesh_pipeline_job_{name}", {"job": job, "cluster": "c1"})


async def test_serve_shows_how_far_a_job_is() -> None:
    job = "job of this test"
    driver = await Driver.started(Command("audit", "audit", (job,), program=(sys.executable, "-c", SAYS)))
    assert (await driver.run()).code == 0
    assert [value(name, job) for name in ("records_total", "refused_total", "failures_total")] == [10, 2, 4]
    assert (value("behind_records", job), value("complete_until_seconds", job)) == (30, 1_795_300_000)


async def test_serve_shows_the_retention_s_distance_and_topics_that_are_set_apart_until_they_are_not() -> None:
    says = (
        SAYS.partition("for _")[0]
        + """
job_reports.tell(job_reports.JobReport(sys.argv[1], "c1", behind=9, spare=7, apart={"apples": "it lost some", "p": ""}))
job_reports.tell(job_reports.JobReport(sys.argv[1], "c1", stuck_s=3.0))
job_reports.tell(job_reports.JobReport(sys.argv[1], "c1", apart={"apples": "it lost some"}))
"""
    )
    job = "another job of this test"
    driver = await Driver.started(Command("archive", "archive", (job,), program=(sys.executable, "-c", says)))
    assert (await driver.run()).code == 0
    assert (value("retention_distance_records", job), value("stuck_seconds", job)) == (7, 0)
    apart = {topic: REGISTRY.get_sample_value(APART, {"job": job, "topic": topic}) for topic in ("apples", "p")}
    assert apart == {"apples": 1, "p": None}


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
