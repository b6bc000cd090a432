"""Orders for continuous jobs, with a control that is played: handed to drivers, and answered once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from mesh.rpc import events, pipelines
from services.pipeline.driver_protocol.job_reports import JobReport
from services.pipeline.serving import continuous
from services.pipeline.serving.continuous import ContinuousDriver
from services.pipeline.serving.driver import Command
from services.pipeline.serving.job_orders import JobOrders, status_of
from tests.fixtures.waiting import until

COMES_S = 30.0
ACCEPTS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)["accept_loss"]
    answer = {"order": asked["order"], "is_done": True, "text": "goes on in " + asked["topic"]}
    print(json.dumps({"accepted_loss": answer}), flush=True)
"""
DIES_FIRST = """
import sys
line = sys.stdin.readline()
with open(sys.argv[3], "a+") as starts:
    starts.seek(0)
    first = not starts.read()
    starts.write("x")
if first:
    sys.exit("Error: killed in between")
for asked, said in (("accept_loss", "accepted_loss"), ('"topic"', '"text"'), ('"until"', '"is_done"')):
    line = line.replace(asked, said)
print(line, flush=True)
sys.stdin.read()
"""


class Link:
    """A control that gives the orders in `given`, and takes outcomes."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[events.SidecarOrder | None] = asyncio.Queue()
        self.outcomes: list[tuple[str, events.OrderOutcome]] = []
        self.jobs: list[list[pipelines.JobStatus]] = []
        self.failures = 0

    async def open_orders(self) -> AsyncIterator[events.SidecarOrder]:
        while (order := await self.given.get()) is not None:
            yield order

    async def report_order(self, name: str, outcome: events.OrderOutcome) -> None:
        if self.failures:
            self.failures -= 1
            raise AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "away")
        self.outcomes.append((name, outcome))

    async def report_jobs(self, jobs: list[pipelines.JobStatus]) -> None:
        self.jobs.append(jobs)


def order(name: str = "orders/1", job: str = "archive", topic: str = "apples") -> events.SidecarOrder:
    loss = events.AcceptLoss(job=job, topic=topic)
    made = events.SidecarOrder(name=name, command=events.SidecarCommand(accept_loss=loss))
    made.expire_time.FromDatetime(datetime.now(UTC) + timedelta(hours=1))
    return made


def job(program: str, *arguments: str) -> ContinuousDriver:
    start = (sys.executable, "-c", program)
    return ContinuousDriver(Command("archive", "archive", ("run", "archive", *arguments), program=start))


@pytest.fixture
async def link() -> Link:
    return Link()


async def carried_out(link: Link, driver: ContinuousDriver, count: int = 1) -> None:
    """Until control has heard of so many outcomes."""
    tasks = [asyncio.create_task(each) for each in (JobOrders(link, [driver]).run(), driver.run())]  # type: ignore[arg-type]  # a link that is played
    try:
        await until(lambda: len(link.outcomes) >= count, "control has heard the outcome", COMES_S)
    finally:
        driver.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_order_is_carried_out_by_the_driver_and_its_outcome_told_until_control_takes_it(link: Link) -> None:
    link.failures = 2
    link.given.put_nowait(order())
    link.given.put_nowait(order())  # as after a lost connection
    await carried_out(link, job(ACCEPTS))
    [(name, outcome)] = link.outcomes
    assert (name, outcome.result, outcome.description) == ("orders/1", events.ORDER_RESULT_DONE, "goes on in apples")


async def test_a_driver_that_dies_over_it_is_followed_by_one_that_is_told_again(
    link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "FIRST_PAUSE_S", 0.01)
    link.given.put_nowait(order())
    await carried_out(link, job(DIES_FIRST, str(tmp_path / "starts")))
    assert (tmp_path / "starts").read_text() == "xx"
    assert [(name, outcome.description) for name, outcome in link.outcomes] == [("orders/1", "apples")]


async def test_an_order_for_a_job_that_does_not_run_here_fails(link: Link) -> None:
    link.given.put_nowait(order(job="traffic"))
    link.given.put_nowait(
        events.SidecarOrder(name="orders/2", command=events.SidecarCommand(get_info=events.GetInfo()))
    )
    await carried_out(link, job(ACCEPTS), 2)
    assert [(outcome.result, outcome.description) for _, outcome in link.outcomes] == [
        (events.ORDER_RESULT_FAILED, "job traffic does not run here (JOBS of this member: archive)"),
        (events.ORDER_RESULT_FAILED, "a pipeline knows no order 'get_info'"),
    ]


async def test_how_a_job_does_is_what_its_driver_said_last() -> None:
    driver = job(ACCEPTS)
    assert status_of(driver) == pipelines.JobStatus(job="archive")
    driver.reports[""] = JobReport(
        "archive", behind=7, spare=3, apart={"apples": "retention took it", "pears": "unknown"}, lost=["apples"]
    )
    driver.reports[""] = JobReport("archive", stuck_s=4.0).with_what_stays_of(driver.reports[""])
    status = status_of(driver)
    assert (status.behind, status.retention_distance, status.apart_count) == (7, 3, 2)
    assert [(each.topic, each.problem, each.loss) for each in status.apart] == [
        ("apples", "retention took it", True),
        ("pears", "unknown", False),
    ]
    driver.reports[""] = JobReport("archive", behind=0, complete_until=1.5, apart={})
    assert status_of(driver).complete_until.ToMilliseconds() == 1500
    assert not status_of(driver).apart
