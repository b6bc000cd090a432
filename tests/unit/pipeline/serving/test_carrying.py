"""One replay at a member: started, started again, cancelled, held, dropped. Its drivers are stand-ins."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import Order
from services.pipeline.serving import replay as carrying
from services.pipeline.serving.driver import Command, Driver
from services.pipeline.serving.orders import ImpossibleOrderError, NotNowError
from services.pipeline.serving.redaction import secrets_in
from services.pipeline.serving.replay import Carrying, Wish
from services.pipeline.serving.reports import is_end
from tests.fixtures.waiting import until

STAND_IN = Path(__file__).with_name("stand_in_driver.py")
COMES_S = 30.0
NAME = "replays/r1"
COPY = replays.ReplaySpec(topic=replays.ReplayToTopic(topic="copies"))
DRY_RUN = replays.ReplaySpec(topic=replays.ReplayToTopic(topic="copies"), dry_run=True)
PROFILE = replays.ReplaySpec(profile=replays.ReplayToProfile())


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "FIRST_PAUSE_S", 0.01)


class World:
    """A replay whose drivers act as they are told, and what control would hear."""

    def __init__(
        self, folder: Path, *actions: str, replay: replays.Replay | None = None, stop_s: float = COMES_S
    ) -> None:
        self.told: list[replays.ReportReplayRequest] = []
        self.turns = asyncio.Semaphore(1)
        self._folder = folder
        self._actions = actions
        self._heard = asyncio.Condition()
        self.carrying = Carrying(
            replay or replays.Replay(name=NAME, spec=COPY),
            "pipeline-1",
            make_order=self.make_order,
            tell=self.told.append,
            turns=self.turns,
            attempts=3,
            stop_s=stop_s,
            make_command=self._command,
        )

    async def make_order(self, replay: replays.Replay) -> Order:
        return Order(replay, {"c1": {"bootstrap.servers": "here:9092", "sasl.password": "s3cr3t"}})

    def _command(self, order: Order) -> Command:
        program = (sys.executable, "-I", "-S", str(STAND_IN))
        arguments = ("run", "replay", str(self._folder), *self._actions)
        return Command("replay", NAME, arguments, order.to_line(), secrets_in(order.clusters), program)

    @property
    def orders(self) -> list[dict[str, Any]]:
        """What drivers were started with."""
        file = self._folder / "orders"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def end(self) -> tuple[str, str] | None:
        """State and description of the end that control hears, if it does."""
        ends = [each for each in self.told if is_end(each.state)]
        assert len(ends) <= 1
        return (
            (replays.ReplayState.Name(ends[0].state).removeprefix("REPLAY_STATE_"), ends[0].description)
            if ends
            else None
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.carrying.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def to_the_end(self) -> None:
        async with self.running() as task, asyncio.timeout(COMES_S):
            await task


async def test_a_driver_reports_and_the_replay_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, "done")
    await world.to_the_end()

    assert [(each.name, each.member) for each in world.told] == [(NAME, "pipeline-1")] * 3
    assert world.end == ("DONE", "")
    assert [each.position for each in world.told[-1].partitions] == [10, 100]


async def test_a_line_that_is_no_report_is_passed_over(tmp_path: Path) -> None:
    world = World(tmp_path, "chatty")
    await world.to_the_end()
    assert (len(world.told), world.end) == (3, ("DONE", ""))


async def test_secrets_are_not_in_what_a_driver_reports(tmp_path: Path) -> None:
    world = World(tmp_path, "tells")
    await world.to_the_end()
    assert world.end == ("FAILED", "no login with ***")


async def test_a_driver_that_dies_is_followed_by_another_that_knows_what_was_reported(tmp_path: Path) -> None:
    world = World(tmp_path, "further", "done")
    await world.to_the_end()

    assert world.end == ("DONE", "")
    first, second = (order["replay"].get("partitions", []) for order in world.orders)
    assert first == []
    assert [each["position"] for each in second] == ["10", "11"]


async def test_drivers_that_die_without_coming_further_are_a_failure_with_their_last_words(tmp_path: Path) -> None:
    world = World(tmp_path, "die")
    await world.to_the_end()

    assert len(world.orders) == 3
    text = "its driver died 3 times in a row without having come further; the last one exited with 1: *** is full"
    assert world.end == ("FAILED", text)


async def test_as_long_as_drivers_come_further_they_may_die(tmp_path: Path) -> None:
    world = World(tmp_path, "further", "further", "further", "further", "done")
    await world.to_the_end()
    assert (len(world.orders), world.end) == (5, ("DONE", ""))


async def test_cancelled_the_driver_says_where_it_stopped(tmp_path: Path) -> None:
    world = World(tmp_path, "wait")
    async with world.running() as task:
        await until(lambda: len(world.told) == 1)
        world.carrying.wants(Wish.CANCEL)
        await asyncio.wait_for(task, COMES_S)

    assert world.end == ("CANCELLED", "")
    assert [each.position for each in world.told[-1].partitions] == [10, 10]


async def test_cancelled_before_it_began_here_it_is_put_away_all_the_same(tmp_path: Path) -> None:
    """A driver of an earlier serve may have written, and both may have died before control heard of a plan."""
    world = World(tmp_path, "done")
    world.carrying.wants(Wish.CANCEL)
    await world.to_the_end()
    assert [order["replay"].get("cancelling", False) for order in world.orders] == [True]
    assert world.end == ("CANCELLED", "swept")


@pytest.mark.parametrize("spec", [PROFILE, DRY_RUN])
async def test_what_writes_nothing_is_cancelled_without_a_driver(tmp_path: Path, spec: replays.ReplaySpec) -> None:
    world = World(tmp_path, "done", replay=replays.Replay(name=NAME, spec=spec))
    world.carrying.wants(Wish.CANCEL)
    await world.to_the_end()
    assert (world.orders, world.end) == ([], ("CANCELLED", "cancelled; nothing was written"))


async def test_cancelled_while_it_waits_for_its_turn_it_waits_no_longer(tmp_path: Path) -> None:
    world = World(tmp_path, "done")
    async with world.turns, world.running() as task:
        await asyncio.sleep(0)
        world.carrying.wants(Wish.CANCEL)
        await asyncio.wait_for(task, COMES_S)
    assert world.end == ("CANCELLED", "swept")
    assert not world.turns.locked()


@pytest.mark.parametrize("wish", [Wish.HOLD, Wish.DROP])
async def test_a_turn_that_is_not_waited_for_any_more_is_anothers(tmp_path: Path, wish: Wish) -> None:
    world = World(tmp_path, "done")
    async with world.running():
        async with world.turns:
            await asyncio.sleep(0)
            world.carrying.wants(wish)
            await asyncio.sleep(0)
        await asyncio.wait_for(world.turns.acquire(), COMES_S)
    assert world.orders == []


@pytest.mark.parametrize(("wish", "told"), [(Wish.CANCEL, [("CANCELLED", "swept")]), (Wish.HOLD, []), (Wish.DROP, [])])
async def test_a_driver_that_is_just_being_started_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: Wish, told: list[tuple[str, str]]
) -> None:
    world = World(tmp_path, "wait")
    start = Driver.started

    async def started(command: Command) -> Driver:
        driver = await start(command)
        world.carrying.wants(wish)
        return driver

    monkeypatch.setattr(Driver, "started", started)
    async with world.running():
        await until(lambda: bool(world.orders) or world.turns.locked())
        await until(lambda: not world.turns.locked() and not world.carrying.has_driver)
        await until(lambda: bool(told) is (world.end is not None))
    assert ([world.end] if world.end else []) == told


async def test_a_driver_that_does_not_stop_is_killed_and_another_one_puts_away_what_it_left(tmp_path: Path) -> None:
    world = World(tmp_path, "deaf", stop_s=0.1)
    async with world.running() as task:
        await until(lambda: len(world.told) == 1)
        world.carrying.wants(Wish.CANCEL)
        await asyncio.wait_for(task, COMES_S)

    assert [order["replay"].get("cancelling", False) for order in world.orders] == [False, True]
    assert world.end == ("CANCELLED", "swept")


async def test_a_cancelled_replay_of_an_earlier_serve_is_swept(tmp_path: Path) -> None:
    partitions = [replays.ReplayPartition(topic="apples", position=7)]
    begun = replays.Replay(name=NAME, spec=COPY, partitions=partitions)
    world = World(tmp_path, "done", replay=begun)
    world.carrying.wants(Wish.CANCEL)
    await world.to_the_end()
    assert (len(world.orders), world.end) == (1, ("CANCELLED", "swept"))


async def test_held_it_stays_open_with_what_is_done_and_goes_on_later(tmp_path: Path) -> None:
    world = World(tmp_path, "wait", "done")
    async with world.running() as task:
        await until(lambda: len(world.told) == 1)
        world.carrying.wants(Wish.HOLD)
        await until(lambda: not world.carrying.has_driver)
        assert [each.state for each in world.told] == [replays.REPLAY_STATE_RUNNING] * 2
        assert not task.done()

        world.carrying.wants(Wish.GO_ON)
        await asyncio.wait_for(task, COMES_S)
    assert world.end == ("DONE", "")


async def test_a_driver_that_somebody_else_stops_cancels_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "wait", "done")
    async with world.running() as task:
        await until(lambda: len(world.told) == 1)
        driver = world.carrying._driver
        assert driver is not None
        await driver.stop(COMES_S)
        await asyncio.wait_for(task, COMES_S)
    assert world.end == ("DONE", "")


async def test_dropped_it_says_nothing_any_more(tmp_path: Path) -> None:
    world = World(tmp_path, "wait")
    async with world.running() as task:
        await until(lambda: len(world.told) == 1)
        world.carrying.wants(Wish.DROP)
        await asyncio.wait_for(task, COMES_S)
    assert (len(world.told), world.end) == (1, None)


async def test_a_driver_that_is_done_and_does_not_end_keeps_nobody_waiting(tmp_path: Path) -> None:
    world = World(tmp_path, "hang", stop_s=0.1)
    await world.to_the_end()
    assert world.end == ("DONE", "")


async def test_what_nobody_can_carry_out_has_failed_without_a_driver(tmp_path: Path) -> None:
    world = World(tmp_path, "done")

    async def impossible(replay: replays.Replay) -> Order:
        raise ImpossibleOrderError("cluster c9 is not registered (known: c1, c2)")

    world.carrying._make_order = impossible
    await world.to_the_end()
    assert (world.orders, world.end) == ([], ("FAILED", "cluster c9 is not registered (known: c1, c2)"))


@pytest.mark.parametrize("trouble", [NotNowError("control is away"), OSError("no more processes")])
async def test_what_can_not_be_had_now_is_waited_for_and_is_no_death_of_a_driver(
    tmp_path: Path, trouble: Exception
) -> None:
    world = World(tmp_path, "die", "die", "done")
    times = 0

    async def make_order(replay: replays.Replay) -> Order:
        nonlocal times
        times += 1
        if times in (1, 2, 3, 5, 7):
            raise trouble
        return await world.make_order(replay)

    world.carrying._make_order = make_order
    await world.to_the_end()
    assert (len(world.orders), world.end) == (3, ("DONE", ""))
