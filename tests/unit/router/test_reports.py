"""How a router's reports to control end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from mesh import durations
from mesh.rpc import admin, discovery, discovery_grpc
from services.router.change import Change
from services.router.discovery import reports
from services.router.discovery.reports import Reporter
from services.router.discovery.roster import HoldBound
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import until

WITHIN_S = 60.0
MANY = 2_000
MOMENTS = 200
"""Turns of the loop after which a stop comes: calls fail in some of them."""


class CountingControl(discovery_grpc.MemberReportServiceServicer):
    """Counts the reports, and remembers the last one."""

    def __init__(self) -> None:
        self.reports = 0
        self.last = discovery.RouterReport()

    async def Report(
        self, request_iterator: AsyncIterator[discovery.RouterReport], context: object
    ) -> AsyncIterator[discovery.RouterOrder]:
        yield discovery.RouterOrder(hold_timeout=durations.of_ms(1))
        async for self.last in request_iterator:
            self.reports += 1


async def test_changes_of_very_many_members_make_few_reports_and_the_last_one_comes() -> None:
    control, change, members = CountingControl(), Change(), [admin.Member(name=f"members/g{n}") for n in range(MANY)]
    server = grpc.aio.server()
    discovery_grpc.add_MemberReportServiceServicer_to_server(control, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reporter = Reporter(
        (f"127.0.0.1:{port}",),
        lambda: discovery.RouterReport(members=members),
        dict,
        dict,
        lambda _: None,
        change,
        HoldBound(1),
    )
    running = asyncio.create_task(reporter.run())
    try:
        await until(lambda: control.reports)
        for revision, member in enumerate(members, start=1):
            member.revision = revision
            change.note()
            await asyncio.sleep(0)
        await until(lambda: control.last.members[-1].revision == MANY)
        assert control.reports <= MANY / 10
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(None)


async def test_a_router_that_stops_while_a_stream_to_control_breaks_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking, let_go = asyncio.Event(), asyncio.Event()

    async def write(_: Reporter, call: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not breaking.is_set():
                breaking.set()
                await let_go.wait()

    monkeypatch.setattr(Reporter, "_write", write)
    nobody = f"127.0.0.1:{free_block(1)}"
    reporter = Reporter((nobody,), discovery.RouterReport, dict, dict, lambda _: None, Change(), HoldBound(1))
    running = asyncio.create_task(reporter.run())
    await asyncio.wait_for(breaking.wait(), WITHIN_S)
    running.cancel()
    await asyncio.wait({running}, timeout=WITHIN_S)
    let_go.set()
    assert running.cancelled()


async def test_a_router_that_stops_while_nobody_answers_at_control_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """grpc.aio ends a call that fails with its error even where whoever awaits it was cancelled."""
    monkeypatch.setattr(reports, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(reports, "FIRST_PAUSE", 0.0)
    reporter = Reporter(
        (f"127.0.0.1:{free_block(1)}",), discovery.RouterReport, dict, dict, lambda _: None, Change(), HoldBound(1)
    )
    for turns in range(MOMENTS):
        running = asyncio.create_task(reporter.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running}, timeout=WITHIN_S)
        assert running.cancelled()
