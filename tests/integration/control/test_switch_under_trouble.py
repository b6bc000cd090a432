"""A topic moves while control loses the lead, or the switch comes late: each record is on one cluster, none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.control import process
from services.control.decisions.members.rollouts import Rollouts
from services.control.domain.members.rollouts import Verdict
from tests.fixtures.cables import Cable
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sweeps import mostly
from tests.fixtures.writers import Writer
from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import World, until

HOLD_MS = 4000
STILL_S = {"home broker": 10.0, "database": 8.0}
"""A transaction of control takes 8 s at most."""


@asynccontextmanager
async def writing(pair: GatewayPair) -> AsyncIterator[list[Writer]]:
    """A writer on each gateway. At the end each acknowledged record stands on one cluster, once and in order."""
    writers = [Writer(name, each.address, pair.topic) for name, each in (("a", pair.g1), ("b", pair.g2))]
    try:
        yield writers
    finally:
        for writer in writers:
            await writer.end()
    old, new = await pair.records("c2"), await pair.records("c1")
    for name, writer in zip("ab", writers, strict=True):
        assert writer.faults == []
        assert [value for value in (*old, *new) if value.startswith(name)] == writer.stored


@pytest.fixture
async def stage(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, tmp_path: Path
) -> AsyncIterator[Callable[..., Any]]:
    """Makes two gateways on one router; the topic lives on c2, and the mesh's own topics on c1."""
    async with AsyncExitStack() as ending:

        async def made(url: str = database, **standby: str) -> tuple[GatewayPair, list[World]]:
            worlds = [World(url, kafka_c1.bootstrap, events_topic, hold_ms=HOLD_MS) for url in (url, *standby.values())]
            for number, world in enumerate(worlds):
                await world.start(wait=not number)
                ending.push_async_callback(world.stop)
            await worlds[0].register("c1", kafka_c1.bootstrap)
            await worlds[0].register("c2", kafka_c2.bootstrap)
            clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
            pair = GatewayPair(worlds[0], f"{events_topic}-moves", clusters, tmp_path)
            ending.push_async_callback(pair.stop)
            await pair.start("c2", worlds[1:])
            return pair, worlds

        yield made


@pytest.mark.parametrize("still", mostly(["home broker"], ["database"]))
async def test_a_switch_that_comes_late_finds_no_gateway_that_writes_to_the_old_cluster(
    stage: Callable[..., Any], database: str, kafka_c1: KafkaCluster, monkeypatch: pytest.MonkeyPatch, still: str
) -> None:
    """One part stands still from the moment in which all gateways hold, for longer than requests wait."""
    monkeypatch.setattr(process, "SWITCH_MARGIN_MS", 0)
    cable = Cable(database)
    await cable.mend()
    pair, _ = await stage(cable.url)
    held, real, since = asyncio.Event(), Rollouts._held, list[float]()

    async def held_then_frozen(
        self: Rollouts, revision: int, expected: frozenset[str], without: Collection[str], deadline: float
    ) -> Verdict:
        verdict = await real(self, revision, expected, without, deadline)
        if still == "database":
            await frozen.enter_async_context(cable.stalled())
        else:
            frozen.enter_context(kafka_c1.frozen())
        since.append(time.monotonic())
        held.set()
        return verdict

    monkeypatch.setattr(Rollouts, "_held", held_then_frozen)
    async with writing(pair) as writers, AsyncExitStack() as frozen:
        for writer in writers:
            await writer.goes_on()
        move = asyncio.create_task(pair.world.set(pair.topic, "c1"))
        await held.wait()
        for gateway in (pair.g1, pair.g2):
            undecided = lambda gateway=gateway: gateway.metric("undecided_moves") == 1  # noqa: E731
            await until(undecided, "records of the moving topic are refused")
        await asyncio.wait([move], timeout=STILL_S[still] - (time.monotonic() - since[0]))
        await frozen.aclose()
        with contextlib.suppress(grpc.aio.AioRpcError):  # given up, or nobody knows: the log does
            await move
        for writer in writers:
            await writer.goes_on()
    await cable.cut()


async def moves_by(leader: World, pair: GatewayPair, writers: Collection[Writer]) -> None:
    """The topic moves by a decision of this control: both gateways follow, and the writers go on."""
    pair.world = leader
    moved = await leader.set(pair.topic, "c1")
    assert list(moved.warnings) == []
    for name in ("g1", "g2"):
        await pair.runs(name, moved.revision)
    for writer in writers:
        await writer.goes_on()


async def test_a_move_whose_control_is_cut_off_while_gateways_hold_ends_alike_on_all_of_them(
    stage: Callable[..., Any], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control that began it lives on, and can't decide anything. The other one leads, and says how it ended."""
    cable = Cable(database)
    await cable.mend()
    pair, (first, second) = await stage(cable.url, standby=database)
    held, real = asyncio.Event(), Rollouts._held

    async def held_then_cut(
        self: Rollouts, revision: int, expected: frozenset[str], without: Collection[str], deadline: float
    ) -> Verdict:
        verdict = await real(self, revision, expected, without, deadline)
        if not held.is_set():
            await cable.cut()
            held.set()
        return verdict

    monkeypatch.setattr(Rollouts, "_held", held_then_cut)
    async with writing(pair) as writers:
        for writer in writers:
            await writer.goes_on()
        move = asyncio.create_task(first.set(pair.topic, "c1"))
        await held.wait()
        await until(lambda: second.lifecycle.is_ready, "the other control leads")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await move
        assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED), error.value.details()
        for writer in writers:
            await writer.goes_on()
        await moves_by(second, pair, writers)


async def test_gateways_hold_for_the_control_that_leads_now(stage: Callable[..., Any], database: str) -> None:
    cable = Cable(database)
    await cable.mend()
    pair, (first, second) = await stage(cable.url, standby=database)
    try:
        async with writing(pair) as writers:
            await cable.cut()
            await until(lambda: second.lifecycle.is_ready, "the other control leads")
            assert not first.lifecycle.is_ready
            await moves_by(second, pair, writers)
    finally:
        await cable.cut()
