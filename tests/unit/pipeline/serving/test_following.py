"""What a member makes of what control gives it, and of a control that gives nothing. Control and drivers are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from mesh.rpc import replays
from services.pipeline.serving import replays as following
from services.pipeline.serving import reports
from services.pipeline.serving.replay import Wish
from services.pipeline.serving.replays import ReplayFollower
from tests.fixtures.waiting import until

NAME = "replays/r1"
FAILED, DONE = replays.REPLAY_STATE_FAILED, replays.REPLAY_STATE_DONE
AWAY, ANOTHERS = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.01)
    for name in ("HOLD_SECONDS", "LOOK_SECONDS", "FIRST_PAUSE_SECONDS"):
        monkeypatch.setattr(following, name, 0.01)


def error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


class PlayedControl:
    """What a ControlLink is to the follower."""

    member = "pipeline-1"

    def __init__(self) -> None:
        self.given: asyncio.Queue[replays.Replay | grpc.aio.AioRpcError] = asyncio.Queue()
        self.refuses = False
        self.heard: list[replays.ReportReplayRequest] = []
        self.is_following = False

    async def open_replays(self) -> AsyncIterator[replays.Replay]:
        self.is_following = True
        try:
            while True:
                said = await self.given.get()
                if not isinstance(said, replays.Replay):
                    raise said
                yield said
        finally:
            self.is_following = False

    async def report(self, request: replays.ReportReplayRequest) -> None:
        if self.refuses:
            raise error(ANOTHERS, "'pipeline-2' carries it out")
        self.heard.append(request)


class PlayedReplay:
    """One that ends as it is told to, at once."""

    has_driver = False

    def __init__(self, state: replays.ReplayState.ValueType, tell: Callable[[Any], None]) -> None:
        self.wish = Wish.GO_ON
        self._state, self._tell = state, tell

    def wants(self, wish: Wish, within_s: float | None = None) -> None:
        self.wish = wish

    async def run(self) -> None:
        self._tell(replays.ReportReplayRequest(name=NAME, member=PlayedControl.member, state=self._state))


class World:
    """A member whose replays end as `ends` has it, one after the other."""

    def __init__(self, *ends: replays.ReplayState.ValueType) -> None:
        self.control = PlayedControl()
        self.begun = 0
        self.superseded: list[str] = []
        self._ends = ends
        link: Any = self.control
        self._follower = ReplayFollower(link, self._begin, superseded=self.superseded.append)

    def _begin(self, _replay: replays.Replay, tell: Callable[[Any], None]) -> Any:
        self.begun += 1
        return PlayedReplay(self._ends[self.begun - 1], tell)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follower.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_end_is_told_again_to_a_control_that_has_not_got_it() -> None:
    world = World(DONE)
    async with world.following():
        for times in (1, 2):
            world.control.given.put_nowait(replays.Replay(name=NAME))
            await until(lambda times=times: len(world.control.heard) == times)  # type: ignore[misc]
    assert (world.begun, [each.state for each in world.control.heard]) == (1, [DONE, DONE])


async def test_an_end_that_was_anothers_to_tell_is_forgotten() -> None:
    """Another member has gone on with it meanwhile; when that is gone, this one goes on where the other one was."""
    world = World(FAILED, DONE)
    world.control.refuses = True
    async with world.following():
        world.control.given.put_nowait(replays.Replay(name=NAME))
        await until(lambda: world.begun == 1 and not world._follower._ends)
        world.control.refuses = False
        world.control.given.put_nowait(replays.Replay(name=NAME))
        await until(lambda: bool(world.control.heard))
    assert (world.begun, [each.state for each in world.control.heard]) == (2, [DONE])


async def test_that_control_can_not_be_followed_is_in_the_log_once_and_why() -> None:
    world = World()
    with capture_logs() as logged:
        for _ in range(5):
            world.control.given.put_nowait(error(AWAY, "connection refused"))
        async with world.following():
            await until(lambda: any(each["event"] == "control can be followed again" for each in logged))
    told = [each for each in logged if each["event"] == "control can't be followed"]
    assert [(each["log_level"], each["reason"]) for each in told] == [("warning", "UNAVAILABLE: connection refused")]


async def test_an_elder_process_follows_no_more() -> None:
    world = World()
    world.control.given.put_nowait(error(grpc.StatusCode.ABORTED, "a younger process of 'pipeline-1' follows"))
    async with world.following():
        await until(lambda: bool(world.superseded))
    assert world.superseded == ["a younger process of 'pipeline-1' follows"]
