"""The page of pipelines: the jobs as their pipeline reports them."""

from __future__ import annotations

from mesh.rpc import pipelines, pipelines_grpc
from mesh.rpc.channels import open_channel
from tests.fixtures.consoles import VIEWER, Consoled
from tests.fixtures.members import certificate_of
from tests.integration.control.world import CALL


async def test_jobs_with_their_state_and_what_is_left_out(console: Consoled) -> None:
    await console.grant("vera", VIEWER)
    async with console.person("vera") as vera:
        assert "No pipeline reports a job." in await vera.sees("/pipelines")
        runs = pipelines.JobStatus(job="traffic", running=True, behind=7, retention_distance=1_000_000)
        runs.complete_until.GetCurrentTime()
        ended = pipelines.JobStatus(job="audit", problem="the disk is full", apart_count=3)
        ended.apart.add(topic="c1/apples", problem="records were deleted before the job read them", loss=True)
        address = f"127.0.0.1:{console.world.control.port}"
        async with open_channel(address, certificate_of(console.authority, "pipeline", "p1")) as channel:
            request = pipelines.ReportJobsRequest(pipeline="p1", incarnation="1795305600000-x7Hq", jobs=[runs, ended])
            await pipelines_grpc.PipelineServiceStub(channel).ReportJobs(request, timeout=CALL)
        page = await vera.sees("/pipelines")
        assert "traffic p1 runs 7 records 1,000,000 records 0 s ago" in page
        assert "audit p1 does not run not known - not known the disk is full" in page
        assert "c1/apples records were deleted before the job read them yes" in page
        assert "2 topics more." in page
    await console.grant("narrow", VIEWER, topic_prefixes=["shop."])
    async with console.person("narrow") as narrow:
        assert "traffic p1" not in (await narrow.client.get("/pipelines")).text
