"""`meshctl topic move`: a topic moves with its records under load, there and back, and no client notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.clients.world import World
from tests.fixtures.freezing import frozen
from tests.fixtures.meshes import Mesh
from tests.fixtures.waiting import wait_until

WITHIN_S = 90
PARTITIONS = 3
SLOW_BYTES = 20_000
"""Bytes a second of a copy that parts are killed under."""
BUDGET_MS = 5000
"""The machine of the tests is busy: a second may be too short for a cut."""


def of_moves(mesh: Mesh, *arguments: str) -> dict[str, Any]:
    run = mesh.meshctl("topic", "move", *arguments, "-o", "json")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


async def done(mesh: Mesh, move: dict[str, Any]) -> dict[str, Any]:
    """The move, when it has ended well."""

    def ended() -> dict[str, Any] | None:
        with contextlib.suppress(AssertionError):  # control may be away
            found = of_moves(mesh, "show", move["name"])
            return found if "end_time" in found else None
        return None

    found = await asyncio.to_thread(wait_until, ended, f"{move['name']} ends", WITHIN_S)
    assert found["state"] == "TOPIC_MOVE_STATE_DONE", found
    return found


class Reader:
    """A consumer of a group, in a thread. It notes what it reads, and commits before it leaves."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.read: list[tuple[int, int, bytes]] = []
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([topic])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[Reader]:
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join(WITHIN_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                self.read.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
        self._consumer.close()


async def on_c1(world: World) -> str:
    """A topic of a prefix that leads to c1."""
    assert world.operator is not None
    world.operator.route_prefix("c1-", "c1")
    topic, _ = await world.topic_on_each(PARTITIONS)
    return topic


async def stored(cluster: Upstream, topic: str) -> list[tuple[int, int, bytes]]:
    return sorted((each.partition, each.offset, each.value.encode()) for each in await cluster.read(topic))


async def test_a_topic_moves_with_its_records_and_back(own_mesh: Mesh, own_world: World) -> None:
    world = own_world
    topic, group = await on_c1(world), world.name("readers")
    first, second = (Reader(world.bootstrap, topic, group) for _ in range(2))
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    try:
        with first.running():
            there = await done(own_mesh, of_moves(own_mesh, topic, "--to", "c2", "--budget", f"{BUDGET_MS}"))
            await load.progress()
        with second.running():  # the group goes on at the new cluster, from where it was
            before = await stored(world.c1, topic)
            back = await done(own_mesh, of_moves(own_mesh, "undo", there["name"]))
            await load.progress()
            assert len(await stored(world.c1, topic)) > len(before)
            again = await done(own_mesh, of_moves(own_mesh, topic, "--to", "c2", "--budget", f"{BUDGET_MS}"))
            await load.progress()
            await load.stop()
            everything = await stored(world.c2, topic)
            await asyncio.to_thread(
                wait_until, lambda: len(first.read) + len(second.read) >= len(everything), "all is read", WITHIN_S
            )
    finally:
        await load.stop()
    await load.check([world.c2])
    assert sorted(first.read + second.read) == everything
    ends = [[int(each["end"]) for each in move["cuts"]] for move in (there, back, again)]
    assert all(one < two < three for one, two, three in zip(*ends, strict=True))
    assert all(0 < move["pause_ms"] <= BUDGET_MS for move in (there, back, again))


@pytest.mark.soak
async def test_a_move_outlives_each_part_that_is_killed(own_mesh: Mesh, own_world: World) -> None:
    world = own_world
    topic = await on_c1(world)
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"), rate=100)
    load.expect_lost_connections()
    try:
        options = ("--to", "c2", "--rate", f"{SLOW_BYTES}", "--budget", f"{BUDGET_MS}")
        move = of_moves(own_mesh, topic, *options)
        for part in ("control", "router"):  # while it copies
            own_mesh.kill(part)
            own_mesh.start(part)
        with frozen(own_mesh.processes()["gateway"]["pid"]):  # nobody holds, so the move is amid its cut

            def is_cutting() -> bool:
                return bool(of_moves(own_mesh, "show", move["name"])["state"] == "TOPIC_MOVE_STATE_CUTTING")

            await asyncio.to_thread(wait_until, is_cutting, "the move cuts", WITHIN_S)
            own_mesh.kill("control")
        own_mesh.start("control")
        await done(own_mesh, move)
        await load.progress()
    finally:
        await load.stop()
    await load.check([world.c2])
