"""`meshctl jobs`: what is typed, what control is asked, what is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from mesh.rpc import events, instances, pipelines
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
LOST = pipelines.TopicApart(topic="apples", problem="retention took 3 offsets", loss=True)
GONE = pipelines.TopicApart(topic="pears", problem="topic pears is unknown")


def listed(*pipelines_: str, job: str = "archive") -> pipelines.ListJobsResponse:
    """Each runs a job."""
    status = pipelines.JobStatus(
        job=job, running=True, behind=1_234, retention_distance=-3, apart=[LOST, GONE], apart_count=2
    )
    found = [pipelines.ListedJob(pipeline=f"pipelines/{name}", status=status) for name in pipelines_]
    return pipelines.ListJobsResponse(jobs=found)


def done(request: Any) -> events.SidecarOrder:
    order = events.SidecarOrder(
        name="orders/3f9a", target=request.target, sidecar=request.target, command=request.command
    )
    order.outcome.CopyFrom(
        events.OrderOutcome(result=events.ORDER_RESULT_DONE, description="goes on without 3 offsets")
    )
    return order


def test_jobs_are_listed_with_the_topics_that_they_set_apart_and_the_way_out(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    control.answers["ListJobs"] = listed("p1")
    result = meshctl("jobs", "list")
    assert result.exit_code == 0, result.output
    table, *told = result.output.splitlines()[1:]
    assert table.split()[:5] == ["archive", "p1", "runs", "1,234", "-3"]
    assert told == [
        "archive sets apples apart: retention took 3 offsets",
        "  to go on without what is lost: meshctl jobs accept-loss archive apples",
        "archive sets pears apart: topic pears is unknown",
    ]


def test_without_a_pipeline_that_is_said(control: ScriptedControl, meshctl: Meshctl) -> None:
    assert meshctl("jobs", "list").output == "No pipeline that runs continuous jobs is connected.\n"


def test_a_loss_is_accepted_of_the_pipeline_that_runs_the_job(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers |= {"ListJobs": listed("p1"), "PlaceOrder": done}
    result = meshctl("jobs", "accept-loss", "archive", "apples", "--reason", "the disk was full")
    assert result.output == (
        "pipeline p1: go on in apples without what job archive has lost of it: done, goes on without 3 offsets\n"
    )
    [request] = control.requests("PlaceOrder")
    loss = events.SidecarCommand(accept_loss=events.AcceptLoss(job="archive", topic="apples"))
    assert (request.target, request.command, request.reason) == ("pipelines/p1", loss, "the disk was full")
    assert (request.wait.seconds, request.expire_after.seconds) == (50, 600)


def test_of_several_pipelines_one_has_to_be_named(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers |= {"ListJobs": listed("p1", "p2"), "PlaceOrder": done}
    refused = meshctl("jobs", "accept-loss", "archive", "apples")
    assert refused.exit_code != 0
    assert "p1, p2 run it; say which one with --pipeline" in refused.output
    assert not control.requests("PlaceOrder")
    none = meshctl("jobs", "accept-loss", "traffic", "mesh.traffic")
    assert "no pipeline that is connected runs it" in none.output
    meshctl("jobs", "accept-loss", "archive", "apples", "--pipeline", "p2")
    [request] = control.requests("PlaceOrder")
    assert request.target == "pipelines/p2"


def test_an_order_that_is_still_open_says_where_its_outcome_will_be(control: ScriptedControl, meshctl: Meshctl) -> None:
    def open_order(request: instances.PlaceOrderRequest) -> events.SidecarOrder:
        order = done(request)
        order.ClearField("outcome")
        return order

    control.answers |= {"ListJobs": listed("p1"), "PlaceOrder": open_order}
    result = meshctl("jobs", "accept-loss", "archive", "apples", "--wait", "1")
    assert "not done within 1 s by pipeline p1" in result.output
    assert "`meshctl history --pipeline p1` shows what becomes of it" in result.output
