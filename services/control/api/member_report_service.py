"""MemberReportService: routers report themselves and the data planes that hang on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import structlog

from mesh import durations
from mesh.rpc import discovery, discovery_grpc, quotas
from services.control.decisions.members.members import Members
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.standbys.reports import StandbyReports
from services.control.store.journal import Journal

log = structlog.get_logger(__name__)


class MemberReportService(discovery_grpc.MemberReportServiceServicer):
    """See MemberReportService in discovery.proto."""

    def __init__(
        self,
        journal: Journal,
        members: Members,
        record_progress: RecordProgress,
        standby_reports: StandbyReports,
        hold_ms: int,
    ) -> None:
        self._journal = journal
        self._members = members
        self._record_progress = record_progress
        self._standby_reports = standby_reports
        self._hold_ms = hold_ms

    async def Report(
        self, request_iterator: AsyncIterator[discovery.RouterReport], context: Any
    ) -> AsyncIterator[discovery.RouterOrder]:
        self._journal.require_leading()  # and with each report: the control that decides has to hear every gateway
        yield discovery.RouterOrder(hold_timeout=durations.of_ms(self._hold_ms))
        stream, name = object(), ""
        divided: dict[str, quotas.QuotaParts] = {}
        try:
            async for report in request_iterator:
                if not name:
                    name = report.router.name
                    log.info("router connected", router=name, peer=context.peer())
                self._journal.require_leading()
                self._standby_reports.report(report.members, report.acknowledged, report.standby_reports)
                self._members.report(
                    stream,
                    report.router,
                    report.members,
                    report.departed,
                    report.clients,
                    report.departed_processes,
                )
                self._members.report_quota_uses(report.quota_parts)
                policy = self._journal.view.state.effective.policies.quota_policy
                parts = self._members.quota_shares(stream) if policy is not None and policy.quotas else {}
                if parts != divided:
                    divided = parts
                    yield discovery.RouterOrder(quota_parts=parts)
                self._record_progress.report(stream, report.router.name, report.record_rules)
        finally:
            self._members.left(stream)
            self._record_progress.left(stream)
            log.info("router left", router=name)
