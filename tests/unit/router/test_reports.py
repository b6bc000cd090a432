"""How a router's reports to control end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mesh.rpc import discovery
from services.router.change import Change
from services.router.discovery import reports
from services.router.discovery.reports import Reporter
from services.router.discovery.roster import HoldBound
from tests.fixtures.ports import free_block

WITHIN_S = 60.0
MOMENTS = 200
"""Turns of the loop after which a stop comes: calls fail in some of them."""


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
    reporter = Reporter((nobody,), discovery.RouterReport, dict, lambda _: None, Change(), HoldBound(1))
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
        (f"127.0.0.1:{free_block(1)}",), discovery.RouterReport, dict, lambda _: None, Change(), HoldBound(1)
    )
    for turns in range(MOMENTS):
        running = asyncio.create_task(reporter.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running}, timeout=WITHIN_S)
        assert running.cancelled()
