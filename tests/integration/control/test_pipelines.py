"""What pipelines tell of their jobs, and the loss that an operator accepts: an event, audited, told in the history."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
import psycopg
import pytest

from mesh.rpc import admin, events, pipelines
from services.control.verify_log import VerifySettings, verify
from tests.integration.control.sidecar import ELDER, YOUNGER, Pipeline, place
from tests.integration.control.world import CALL, World, refused

P1 = "pipelines/p1"
ACCEPT = events.SidecarCommand(accept_loss=events.AcceptLoss(job="archive", topic="apples"))
LOST = pipelines.TopicApart(topic="apples", problem="retention took 3 offsets", loss=True)


@pytest.fixture
async def p1(world: World) -> Pipeline:
    """It is there, and runs the archive."""
    pipeline = Pipeline(world)
    await pipeline.reports_jobs(pipelines.JobStatus(job="archive", running=True, behind=7, apart=[LOST], apart_count=1))
    return pipeline


async def test_the_jobs_of_pipelines_are_listed_with_the_topics_that_they_set_apart(world: World, p1: Pipeline) -> None:
    [listed] = (await world.pipelines.ListJobs(pipelines.ListJobsRequest(), timeout=CALL)).jobs
    assert (listed.pipeline, listed.status.job, listed.status.behind) == (P1, "archive", 7)
    assert list(listed.status.apart) == [LOST]
    assert await world.history(stream=P1) == [], "that is no event"

    await p1.reports_jobs(*(pipelines.JobStatus(job=job, running=True) for job in ("traffic", "archive")))
    request = pipelines.ListJobsRequest(page_size=1)
    first = await world.pipelines.ListJobs(request, timeout=CALL)
    request.page_token = first.next_page_token
    last = await world.pipelines.ListJobs(request, timeout=CALL)
    assert [each.status.job for page in (first, last) for each in page.jobs] == ["archive", "traffic"]
    assert (bool(first.next_page_token), last.next_page_token) == (True, "")


async def test_the_loss_that_an_operator_accepts_is_an_event_with_its_outcome(
    world: World, p1: Pipeline, database: str
) -> None:
    async with p1.follows() as orders:
        waiting = asyncio.create_task(
            place(world, P1, command=ACCEPT, wait=timedelta(seconds=20), reason="the disk was full")
        )
        order = await orders.next()
        assert (order.target, order.command) == (P1, ACCEPT)
        await p1.reports(order, description="goes on without what retention took: apples/0 offsets 10 to 12")
        assert (await waiting).outcome.result == events.ORDER_RESULT_DONE
    short = order.name.removeprefix("orders/")
    told = await world.decisions.ListHistory(admin.ListHistoryRequest(name=P1), timeout=CALL)
    assert [sentence for entry in told.entries for sentence in entry.changes] == [
        f"pipeline p1: order {short} done by p1: goes on without what retention took: apples/0 offsets 10 to 12",
        f"pipeline p1 is to go on in apples without what job archive has lost of it (order {short})",
    ]
    assert (told.entries[-1].actor, told.entries[-1].reason) == ("ada", "the disk was full")
    audit = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    methods = {each.method.rpartition("/")[2]: each.resource for each in audit.audit_events}
    assert methods == {"PlaceOrder": P1, "ReportOrder": order.name}
    with psycopg.connect(database) as connection:
        row = connection.execute("select target, sidecar, kind, state, actor from sidecar_orders").fetchall()
    assert row == [(P1, P1, "accept_loss", "done", "ada")]
    settings = VerifySettings(database_url=world.settings.database_url)
    assert (await asyncio.to_thread(verify, settings, with_kafka=False)).differences == []


async def test_a_pipeline_gives_way_to_a_younger_process_of_its_name(world: World, p1: Pipeline) -> None:
    await Pipeline(world, incarnation=YOUNGER).reports_jobs()
    assert p1.incarnation == ELDER
    await refused(p1.reports_jobs(), grpc.StatusCode.ABORTED, "a younger process of pipelines/p1 is there")
    async with p1.follows() as orders:
        await refused(orders.next(), grpc.StatusCode.ABORTED, "a younger process of pipeline 'p1' is there")


async def test_a_frozen_mesh_accepts_no_loss(world: World, p1: Pipeline) -> None:
    await world.changes.Freeze(admin.FreezeRequest(reason="the week of the year"), timeout=CALL)
    await refused(place(world, P1, command=ACCEPT), grpc.StatusCode.FAILED_PRECONDITION, "the week of the year")
    await p1.reports_jobs()


async def test_a_loss_is_accepted_of_a_pipeline_that_is_heard_of(world: World) -> None:
    await refused(place(world, P1, command=ACCEPT), grpc.StatusCode.NOT_FOUND, "no pipeline 'p1' has been heard of")
