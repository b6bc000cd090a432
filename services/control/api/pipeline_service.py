"""PipelineService: the reports of pipelines about their continuous jobs."""

from __future__ import annotations

from typing import Any

from mesh.rpc import pipelines, pipelines_grpc
from services.control.api import pages
from services.control.decisions.members.pipelines import Pipelines
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import Conflict
from services.control.domain.sidecars.commands import PIPELINES
from services.control.domain.sidecars.incarnations import incarnation_of
from services.control.store.journal import Journal


class PipelineService(pipelines_grpc.PipelineServiceServicer):
    """See PipelineService in pipelines.proto."""

    def __init__(self, journal: Journal, sidecars: Sidecars) -> None:
        """`sidecars` holds the members that follow orders, pipelines by their resource names."""
        self._journal = journal
        self._sidecars = sidecars
        self._told = Pipelines(sidecars.is_alive)

    async def ReportJobs(self, request: pipelines.ReportJobsRequest, context: Any) -> pipelines.ReportJobsResponse:
        self._journal.require_leading()
        name = f"{PIPELINES}{request.pipeline.removeprefix(PIPELINES)}"
        if not self._sidecars.hear(name, incarnation_of(request.incarnation)):
            raise Conflict("SUPERSEDED", f"a younger process of {name} is there; this one shall run no jobs")
        self._told.report(name, request.jobs)
        return pipelines.ReportJobsResponse()

    async def ListJobs(self, request: pipelines.ListJobsRequest, context: Any) -> pipelines.ListJobsResponse:
        self._journal.require_leading()
        found = self._told.jobs()
        keys = [f"{each.pipeline} {each.status.job}" for each in found]
        page, token = pages.cut("jobs", found, keys, request.page_size, request.page_token)
        return pipelines.ListJobsResponse(jobs=page, next_page_token=token)
