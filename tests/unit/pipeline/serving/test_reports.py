"""What control hears of replays: the newest, together, and for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from mesh.rpc import replays
from services.pipeline.serving import reports
from services.pipeline.serving.reports import Reports
from tests.fixtures.waiting import until

COMES_S = 30.0
RUNNING, DONE = replays.REPLAY_STATE_RUNNING, replays.REPLAY_STATE_DONE
AWAY, ANOTHERS = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION
UNREADABLE = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(reports, "FIRST_PAUSE_SECONDS", 0.01)


class World:
    """Reports, and a control that answers as it is told."""

    def __init__(self) -> None:
        self.answers: list[grpc.StatusCode] = []
        """What the next calls end with; OK afterwards."""
        self.calls = 0
        self.heard: list[replays.ReportReplayRequest] = []
        self.dropped: list[str] = []
        self.reports = Reports(self._report, self.dropped.append)

    async def _report(self, request: replays.ReportReplayRequest) -> None:
        self.calls += 1
        if self.answers:
            raise grpc.aio.AioRpcError(self.answers.pop(0), grpc.aio.Metadata(), grpc.aio.Metadata(), details="no")
        self.heard.append(request)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reports.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def report(state: replays.ReplayState.ValueType, positions: dict[int, int]) -> replays.ReportReplayRequest:
    partitions = [replays.ReplayPartition(topic="t", partition=number, position=at) for number, at in positions.items()]
    return replays.ReportReplayRequest(name="replays/r", member="p", state=state, partitions=partitions)


def positions(request: replays.ReportReplayRequest) -> dict[int, int]:
    return {each.partition: each.position for each in request.partitions}


async def test_what_changes_before_it_is_told_is_told_once() -> None:
    world = World()
    world.reports.add(report(RUNNING, {0: 1, 1: 1}))
    world.reports.add(report(RUNNING, {1: 2}))
    world.reports.add(report(DONE, {0: 9}))
    async with world.running():
        await until(lambda: bool(world.heard))
    [said] = world.heard
    assert (said.state, positions(said)) == (DONE, {0: 9, 1: 2})


async def test_what_a_control_that_is_away_has_not_heard_is_told_when_it_is_back() -> None:
    world = World()
    world.answers = [AWAY, AWAY, AWAY]
    async with world.running():
        world.reports.add(report(RUNNING, {0: 1, 1: 1}))
        await until(lambda: world.calls == 2)
        world.reports.add(report(RUNNING, {0: 2}))
        await until(lambda: bool(world.heard))
    assert positions(world.heard[-1]) == {0: 2, 1: 1}


async def test_after_an_end_nothing_else_is_told() -> None:
    world = World()
    world.reports.add(report(DONE, {0: 9}))
    world.reports.add(report(RUNNING, {0: 1}))
    await world.reports.flush(COMES_S)
    assert [(each.state, positions(each)) for each in world.heard] == [(DONE, {0: 9})]


async def test_of_what_is_anothers_by_now_nothing_is_told_again() -> None:
    world = World()
    world.answers = [ANOTHERS]
    world.reports.add(report(RUNNING, {0: 1}))
    await world.reports.flush(COMES_S)
    assert (world.dropped, world.heard) == (["replays/r"], [])


async def test_an_end_that_control_cannot_read_is_told_without_the_rest() -> None:
    world = World()
    world.answers = [UNREADABLE]
    world.reports.add(report(DONE, {0: 9}))
    await world.reports.flush(COMES_S)
    [said] = world.heard
    assert (said.state, positions(said)) == (DONE, {})


async def test_a_flush_ends_though_control_is_away() -> None:
    world = World()
    world.answers = [AWAY] * 1_000_000
    world.reports.add(report(DONE, {0: 9}))
    async with asyncio.timeout(COMES_S):
        await world.reports.flush(0.05)
    assert (world.heard, world.dropped) == ([], [])
