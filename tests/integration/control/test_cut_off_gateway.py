"""Real gateways and a real router: one gateway is cut off from it while a topic moves, or stops, or is killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from mesh.rpc import admin
from services.control.decisions import rollouts
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import Cable, World, create_topic, refused, until
from tests.integration.gateway.records import produce, read_all
from tests.integration.router.parts import ServiceProcess

START_S = 60.0


class Pair:
    """Gateways g1 and g2 on one router; the link of g2 can be cut. The topic is on both clusters, and lives on c1."""

    def __init__(self, world: World, topic: str, clusters: dict[str, str], folder: Path) -> None:
        self.world = world
        self.topic = topic
        self._clusters = clusters
        self._folder = folder
        self._ending = AsyncExitStack()

    async def start(self) -> None:
        for bootstrap in self._clusters.values():
            create_topic(bootstrap, self.topic, 1)
        await self.world.set(self.topic, "c1")
        router = await self._service(
            "router",
            "r1",
            HOME_BOOTSTRAP_SERVERS=self.world.home,
            EVENTS_TOPIC=self.world.settings.events_topic,
            CONTROL_ADDRESS=f"127.0.0.1:{self.world.control.port}",
        )
        self.cable = Cable(f"router://{router.address}")
        await self.cable.mend()
        self._ending.push_async_callback(self.cable.cut)
        self.g1, self.g2 = await asyncio.gather(
            self._gateway("g1", router.address), self._gateway("g2", self.cable.url.removeprefix("router://"))
        )
        for name in ("g1", "g2"):
            await self.runs(name, self.world.control.journal.view.state.effective.revision)

    async def stop(self) -> None:
        await self._ending.aclose()

    async def member(self, name: str) -> admin.Member | None:
        members = (await self.world.status()).members
        return next((each for each in members if each.name == f"members/{name}"), None)

    async def runs(self, name: str, revision: int) -> None:
        async def does() -> bool:
            member = await self.member(name)
            return member is not None and not member.left_behind and member.revision == revision

        await until(does, f"{name} runs revision {revision}")

    async def is_left_behind(self, name: str) -> None:
        async def is_so() -> bool:
            member = await self.member(name)
            return member is not None and member.left_behind

        await until(is_so, f"{name} is left behind")

    async def starts(self, process: ServiceProcess) -> None:
        process.start()
        await asyncio.to_thread(wait_until, lambda: process.ready() == "ready", "it is ready", START_S)

    async def produce(self, gateway: ServiceProcess, value: str) -> None:
        await asyncio.to_thread(produce, gateway.address, self.topic, [value])

    async def records(self, cluster: str) -> list[str]:
        """What stands on the real cluster."""
        return await asyncio.to_thread(read_all, self._clusters[cluster], self.topic)

    async def _gateway(self, name: str, router: str) -> ServiceProcess:
        return await self._service(
            "gateway",
            name,
            ROUTER_ADDRESSES=router,
            STATE_DIR=str(self._folder / name),
            DRAIN_TIMEOUT_S="1",
        )

    async def _service(self, service: str, name: str, **settings: str) -> ServiceProcess:
        process = ServiceProcess(service, free_block(2), self._folder / f"{name}.log", {"NAME": name, **settings})
        self._ending.callback(process.stop)
        await self.starts(process)
        return process


@pytest.fixture
async def pair(
    mesh_of_two: World,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Pair]:
    monkeypatch.setattr(rollouts, "COMEBACK_TIME", 0.3)
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    made = Pair(mesh_of_two, unique_name("changes-cut-off"), clusters, tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_one_that_is_cut_off_serves_moved_topics_until_it_hears(pair: Pair) -> None:
    world, topic = pair.world, pair.topic
    await pair.produce(pair.g2, "before")
    await pair.cable.cut()
    await pair.is_left_behind("g2")
    await refused(world.set(topic, "c2"), grpc.StatusCode.ABORTED, "g2 has not been heard of", "Nothing was changed")

    moved = await world.set(topic, "c2", without_members=["g2"])
    assert ["'g2' was left behind" in warning for warning in moved.warnings] == [True]
    await pair.produce(pair.g1, "moved")
    await pair.produce(pair.g2, "left behind")
    assert await pair.records("c1") == ["before", "left behind"]
    assert await pair.records("c2") == ["moved"]
    behind = await pair.member("g2")
    assert behind is not None
    assert (behind.left_behind, behind.revision < moved.revision) == (True, True)

    await pair.cable.mend()
    await pair.runs("g2", moved.revision)
    await pair.produce(pair.g2, "heard")
    assert await pair.records("c1") == ["before", "left behind"]
    assert await pair.records("c2") == ["moved", "heard"]
    assert list((await world.set(topic, "c1")).warnings) == []


async def test_one_that_stops_in_order_is_not_waited_for_and_one_that_is_killed_is(pair: Pair) -> None:
    world, topic = pair.world, pair.topic
    await asyncio.to_thread(pair.g2.stop)

    async def is_gone() -> bool:
        return await pair.member("g2") is None

    await until(is_gone, "g2 has said goodbye, through its router")
    assert list((await world.set(topic, "c2")).warnings) == []
    await pair.starts(pair.g2)  # the table on its disk is from before the move
    await pair.produce(pair.g2, "first of all")
    assert (await pair.records("c1"), await pair.records("c2")) == ([], ["first of all"])

    await asyncio.to_thread(pair.g1.stop, signal.SIGKILL)
    await pair.is_left_behind("g1")
    await refused(world.set(topic, "c1"), grpc.StatusCode.ABORTED, "g1 has not been heard of")
    await pair.starts(pair.g1)  # as its supervisor does: under the same name
    await pair.runs("g1", world.control.journal.view.state.effective.revision)
    assert list((await world.set(topic, "c1")).warnings) == []
