"""A topic moves while control loses the lead, or the switch comes late: each record is on one cluster, none is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from services.control import process
from services.control.decisions.rollouts import Rollouts
from services.control.domain.rollouts import Verdict
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import WITHIN, Cable, World, until

HOLD_MS = 1000


class Writer:
    """A producer that writes on and on through one gateway, in its own thread."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.stored: list[str] = []
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(name, bootstrap, topic))
        self._thread.start()

    def _write(self, name: str, bootstrap: str, topic: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
        for number in count():
            producer.produce(topic, f"{name}-{number}", on_delivery=self._delivered)
            producer.poll(0.01)
            if self._stop.is_set():
                break
        if producer.flush(WITHIN):
            self.faults.append("records have no answer")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.stored.append((message.value() or b"").decode())
        else:
            self.faults.append(str(error))

    async def goes_on(self) -> None:
        before = len(self.stored)
        await until(lambda: len(self.stored) > before, "records are stored")

    async def end(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)


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


async def test_a_switch_that_comes_late_finds_no_gateway_that_writes_to_the_old_cluster(
    stage: Callable[..., Any], kafka_c1: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home broker stands still from the moment in which all gateways hold, for longer than requests wait."""
    monkeypatch.setattr(process, "SWITCH_MARGIN_MS", 0)
    pair, _ = await stage()
    held, real = asyncio.Event(), Rollouts._held

    async def held_then_frozen(
        self: Rollouts, revision: int, expected: frozenset[str], without: Collection[str], deadline: float
    ) -> Verdict:
        verdict = await real(self, revision, expected, without, deadline)
        frozen.enter_context(kafka_c1.frozen())
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
        await frozen.aclose()
        await move
        for writer in writers:
            await writer.goes_on()


async def test_gateways_hold_for_the_control_that_leads_now(stage: Callable[..., Any], database: str) -> None:
    cable = Cable(database)
    await cable.mend()
    pair, (first, second) = await stage(cable.url, standby=database)
    try:
        async with writing(pair) as writers:
            await cable.cut()
            await until(lambda: second.lifecycle.is_ready, "the other control leads")
            assert not first.lifecycle.is_ready
            pair.world = second
            moved = await second.set(pair.topic, "c1")
            assert list(moved.warnings) == []
            for name in ("g1", "g2"):
                await pair.runs(name, moved.revision)
            for writer in writers:
                await writer.goes_on()
    finally:
        await cable.cut()
