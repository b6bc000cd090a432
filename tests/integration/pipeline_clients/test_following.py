"""A member follows a real control, and stand-ins of drivers do what tests want of them: quick, and without Spark. With
real ones it is in tests/e2e/pipeline, and killed in tests/soak/pipeline/test_serve_kills.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from local.example import create_topics
from mesh import durations
from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import Order
from services.pipeline.serving import replays as following
from services.pipeline.serving import reports
from services.pipeline.serving.control import ControlLink
from services.pipeline.serving.driver import Command
from services.pipeline.serving.orders import DRIVERS, OrderMaking
from services.pipeline.serving.replay import Carrying
from services.pipeline.serving.replays import ReplayFollower
from services.pipeline.settings import PipelineSettings
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import CALL, World, until

STAND_IN = Path(__file__).parents[2] / "unit" / "pipeline" / "serving" / "stand_in_driver.py"
COMES_S = 120.0
RUNNING, DONE, CANCELLED = replays.REPLAY_STATE_RUNNING, replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_CANCELLED

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def reports_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.02)


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    """Of one control, as which each test's is started again."""
    return postgres.migrated()


@pytest.fixture(scope="module")
def topic(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> str:
    """It is there on both clusters."""
    name = f"following-{uuid.uuid4().hex[:8]}"
    for cluster in (kafka_c1, kafka_c2):
        create_topics(cluster.bootstrap, (name,), partitions=2)
    return name


@pytest.fixture
async def world(database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> AsyncIterator[World]:
    async with World(database, kafka_c1.bootstrap, f"{topic}-events") as made:
        if not made.control.journal.view.state.effective.clusters:
            await made.register("c1", kafka_c1.bootstrap)
            await made.register("c2", kafka_c2.bootstrap)
        yield made


class Member:
    """One process of the member; its drivers are stand-ins that act as told."""

    def __init__(self, world: World, folder: Path, *actions: str, name: str = "pipeline-1", at_a_time: int = 2) -> None:
        self.superseded: list[str] = []
        self._folder = folder
        self._actions = actions
        self._name = name
        self._turns = asyncio.Semaphore(at_a_time)
        self.link = ControlLink((f"127.0.0.1:{world.control.port}",), name, tuple(DRIVERS), max_running=at_a_time)
        making = OrderMaking(PipelineSettings(control_addresses=(f"127.0.0.1:{world.control.port}",)))
        self.follower = ReplayFollower(
            self.link, lambda *each: self._begin(making, *each), superseded=self.superseded.append
        )

    def _begin(
        self, making: OrderMaking, replay: replays.Replay, tell: Callable[[replays.ReportReplayRequest], None]
    ) -> Carrying:
        return Carrying(
            replay, self._name, make_order=making.order, tell=tell, turns=self._turns, attempts=3, stop_s=CALL,
            make_command=self._command,
        )  # fmt: skip

    def _command(self, order: Order) -> Command:
        program = (sys.executable, "-I", "-S", str(STAND_IN))
        arguments = ("run", "replay", str(self._folder), *self._actions)
        return Command("replay", order.replay.name, arguments, order.to_line(), program=program)

    @property
    def orders(self) -> list[dict[str, Any]]:
        """What its drivers were started with."""
        file = self._folder / "orders"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """It follows, and drains at the end."""
        task = asyncio.create_task(self.follower.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.follower.drain(CALL, CALL)
            await self.link.close()


async def copy_of(world: World, topic: str) -> str:
    """The name of a replay that copies a topic from c1 to c2."""
    copy = replays.ReplayToTopic(source_cluster="c1", cluster="c2")
    spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic=topic)], topic=copy)
    started = await world.replays.StartReplay(
        replays.StartReplayRequest(spec=spec, wait=durations.of_ms(1)), timeout=CALL
    )
    return started.name


async def seen(world: World, name: str) -> replays.Replay:
    return await world.replays.GetReplay(replays.GetReplayRequest(name=name), timeout=CALL)


async def cancel(world: World, name: str) -> None:
    await world.replays.CancelReplay(replays.CancelReplayRequest(name=name), timeout=CALL)


async def until_is(world: World, name: str, state: replays.ReplayState.ValueType, *, positions: list[int]) -> None:
    async def is_so() -> bool:
        try:
            replay = await seen(world, name)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:  # control has just come back
                return False
            raise
        return replay.state == state and [each.position for each in replay.partitions] == positions

    await until(is_so, f"{name} is {replays.ReplayState.Name(state)} at {positions}", within=COMES_S)


async def test_a_copy_is_ordered_carried_out_and_done(
    world: World, topic: str, tmp_path: Path, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    member = Member(world, tmp_path, "done")
    async with member.following():
        name = await copy_of(world, topic)
        await until_is(world, name, DONE, positions=[10, 100])
    [order] = member.orders
    assert order["replay"]["name"] == name
    servers = {cluster: properties["bootstrap.servers"] for cluster, properties in order["clusters"].items()}
    assert servers == {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}


async def test_cancelled_it_ends_where_the_driver_stopped(world: World, topic: str, tmp_path: Path) -> None:
    async with Member(world, tmp_path, "wait").following():
        name = await copy_of(world, topic)
        await until_is(world, name, RUNNING, positions=[10, 10])
        await cancel(world, name)
        await until_is(world, name, CANCELLED, positions=[10, 10])


async def test_what_is_more_than_a_member_carries_out_waits_for_whoever_is_free(
    world: World, topic: str, tmp_path: Path
) -> None:
    async with Member(world, tmp_path, "wait", at_a_time=1).following():
        first = await copy_of(world, topic)
        await until_is(world, first, RUNNING, positions=[10, 10])
        second = await copy_of(world, topic)

        async def is_told() -> bool:
            told = "waits for its turn: pipeline-1 carries out 1, and no more at a time"
            return (await seen(world, second)).description == told

        await until(is_told, "the second one waits", within=COMES_S)

        async with Member(world, tmp_path, "done", name="pipeline-2").following():
            await until_is(world, second, DONE, positions=[10, 100])
        await cancel(world, first)
        await until_is(world, first, CANCELLED, positions=[10, 10])


async def test_a_member_that_stops_leaves_its_replays_to_the_next_process(
    world: World, topic: str, tmp_path: Path
) -> None:
    async with Member(world, tmp_path, "wait").following():
        name = await copy_of(world, topic)
        await until_is(world, name, RUNNING, positions=[10, 10])
    assert (await seen(world, name)).state == RUNNING

    following_one = Member(world, tmp_path, "wait", "done")
    async with following_one.following():
        await until_is(world, name, DONE, positions=[10, 100])
    assert [len(order["replay"].get("partitions", [])) for order in following_one.orders] == [0, 2]


async def test_what_is_carried_out_is_held_while_control_is_away_and_goes_on_with_it(
    world: World, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HOLD_SECONDS", 0.1)
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.02)
    member = Member(world, tmp_path, "wait", "done")
    async with member.following():
        name = await copy_of(world, topic)
        await until_is(world, name, RUNNING, positions=[10, 10])
        port = world.control.port
        await world.stop()
        await until(lambda: not any(each.has_driver for each in member.follower._carried.values()), "it is held")
        assert len(member.orders) == 1

        world.settings = world.settings.model_copy(update={"listen": f"127.0.0.1:{port}"})
        await world.start()
        await until_is(world, name, DONE, positions=[10, 100])
    assert len(member.orders) == 2


async def test_an_elder_process_of_the_same_name_drops_what_it_has_at_once(
    world: World, topic: str, tmp_path: Path
) -> None:
    elder, younger = Member(world, tmp_path, "deaf", "done"), Member(world, tmp_path, "deaf", "done")
    younger.link._incarnation = f"{int(elder.link._incarnation.partition('-')[0]) + 1}-younger"
    async with elder.following():
        name = await copy_of(world, topic)
        await until_is(world, name, RUNNING, positions=[10, 10])
        async with younger.following():
            await until_is(world, name, DONE, positions=[10, 100])
            await until(lambda: bool(elder.superseded), "the elder knows")
            await until(lambda: not elder.follower._carried, "the elder's driver is gone")
    assert "a younger process of 'pipeline-1' follows" in elder.superseded[0]
