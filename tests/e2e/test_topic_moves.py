"""`meshctl topic move`: a topic moves with its records under load, there and back, and no client notices."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from mesh.rpc import topic_moves
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.clients.world import World
from tests.fixtures.freezing import frozen
from tests.fixtures.meshes import Mesh
from tests.fixtures.topic_moves import BUDGET, BUDGET_MS, WITHIN_S, Move, certified, ended, of_moves
from tests.fixtures.waiting import wait_until

PARTITIONS = 3
SLOW_BYTES = 20_000
"""Bytes a second of a copy that parts are killed under."""


async def done(mesh: Mesh, move: Move) -> Move:
    return await asyncio.to_thread(ended, mesh, move)


class Reader:
    """A consumer of a group, in a thread. The reader notes what it reads, and commits before it leaves."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: str) -> None:
        self.read: list[tuple[int, int, bytes]] = []
        own = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self._settings = {**own, **settings}
        self._topic = topic
        self._has_position = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[Reader]:
        """Begins when the group has a position: only then a move has one to carry."""
        self._thread.start()
        try:
            assert self._has_position.wait(WITHIN_S), f"the group has no position after {WITHIN_S} s"
            yield self
        finally:
            self._ended.set()
            self._thread.join(WITHIN_S)

    def _run(self) -> None:
        # a consumer that subscribes is a member: one that nobody polls would hold back the group's rebalance
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            messages = consumer.consume(500, 0.1)
            for message in messages:
                assert message.error() is None, message.error()
                self.read.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
            if messages and not self._has_position.is_set():
                consumer.commit(asynchronous=False)
                self._has_position.set()
        consumer.close()


async def on_c1(world: World) -> str:
    """A topic of a prefix that leads to c1."""
    assert world.operator is not None
    world.operator.route_prefix("c1-", "c1")
    topic, _ = await world.topic_on_each(PARTITIONS)
    return topic


async def stored(cluster: Upstream, topic: str) -> list[tuple[int, int, bytes]]:
    return sorted((each.partition, each.offset, each.value.encode()) for each in await cluster.read(topic))


async def test_a_topic_moves_with_its_records_and_back(own_mesh: Mesh, own_world: World, tmp_path: Path) -> None:
    world = own_world
    topic, group = await on_c1(world), world.name("readers")
    first, second = (Reader(world.bootstrap, topic, group) for _ in range(2))
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    try:
        with first.running():
            there = await asyncio.to_thread(
                ended, own_mesh, of_moves(own_mesh, topic, "--copy", "--to", "c2", "--budget", f"{BUDGET_MS}")
            )
            await load.progress()
        with second.running():  # the group goes on at the new cluster, from where it was
            before = await stored(world.c1, topic)
            back = await done(own_mesh, of_moves(own_mesh, "undo", there["name"]))
            await load.progress()
            assert len(await stored(world.c1, topic)) > len(before)
            again = await asyncio.to_thread(
                ended, own_mesh, of_moves(own_mesh, topic, "--copy", "--to", "c2", "--budget", f"{BUDGET_MS}")
            )
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
    assert all(0 < 1000 * float(move["pause"].rstrip("s")) <= BUDGET_MS for move in (there, back, again))
    for move in (there, back, again):
        certificate = certified(own_mesh, move)
        assert group in {each["group"] for each in certificate["positions"]}
        own_mesh.meshctl("topic", "move", "verify", move["name"])
    signed = tmp_path / "there.certificate"
    own_mesh.meshctl("topic", "move", "certificate", there["name"], "--out", str(signed))
    verified = own_mesh.meshctl("topic", "move", "verify", str(signed)).stdout
    assert f"of {topic} from c1 to c2, signed by CN=" in verified
    assert "confirmed at" in verified
    content = json.loads(signed.read_text())
    forged = topic_moves.MoveWithRecords.FromString(base64.b64decode(content["move"]))
    forged.pause.nanos += 1
    content["move"] = base64.b64encode(forged.SerializeToString()).decode()
    signed.write_text(json.dumps(content))
    refused = own_mesh.meshctl("topic", "move", "verify", str(signed), check=False)
    assert "control has not signed this move: its bytes are not those that were signed" in refused.stderr


@pytest.mark.soak
async def test_a_move_outlives_each_part_that_is_killed(own_mesh: Mesh, own_world: World) -> None:
    world = own_world
    topic = await on_c1(world)
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"), rate=100)
    load.expect_lost_connections()
    try:
        options = ("--to", "c2", "--rate", f"{SLOW_BYTES}", *BUDGET)
        move = of_moves(own_mesh, topic, "--copy", *options)
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
