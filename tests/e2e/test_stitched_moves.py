"""`meshctl topic move --stitch`: nothing is copied, to and fro under load, and clients see one log."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator

import pytest

from local.layout import STATE_FOLDER
from tests.clients.ledger import Acked
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.clients.world import Addresses, World
from tests.e2e.test_topic_moves import Reader, on_c1
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.topic_moves import BUDGET, WITHIN_S, Move, certified, ended, of_moves
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

CLIENTS = ("java-4.4", "confluent", "aiokafka")
Record = tuple[int, int, bytes]
"""Partition, offset and value, as a client sees them."""


@pytest.fixture(scope="module")
def two_gateways(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("stitched") / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        yield mesh


@pytest.fixture
async def world(two_gateways: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(two_gateways))
    yield world
    await world.clean_up()


def check_one_log(records: list[Record], acked: list[Acked]) -> None:
    """Each acknowledged record is there once, at the offset that its producer heard; offsets have no gap."""
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, offset, _ in records:
        by_partition[partition].append(offset)
    for partition, offsets in by_partition.items():
        assert offsets == list(range(len(offsets))), f"partition {partition} has gaps, or is not in order"
    places = {value.decode(): (partition, offset) for partition, offset, value in records}
    twice = [value for value, count in Counter(value for *_, value in records).items() if count > 1]
    assert not twice, f"{len(twice)} records are there twice: {twice[:5]}"
    heard = {each.id: (each.partition, each.offset) for each in acked}
    assert heard.keys() == places.keys()
    moved = {
        each: (places[each], heard[each])
        for each in heard
        if heard[each][1] != Acked.UNKNOWN_OFFSET and places[each] != heard[each]
    }
    assert not moved, f"{len(moved)} records are not where their producers heard: {list(moved.items())[:5]}"


def parts(mesh: Mesh, topic: str) -> list[str]:
    found = json.loads(mesh.meshctl("topic", "parts", topic, "-o", "json").stdout)
    return [part["cluster"] for part in found["parts"]]


async def test_clients_see_one_log_while_a_topic_goes_to_and_fro_and_nothing_is_copied(
    two_gateways: Mesh, world: World
) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    reader = Reader(mesh.endpoints["gateway-2"], topic, world.name("reader"))
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    moves: list[Move] = []
    try:
        with reader.running():
            for target in ("c2", "c1", "c2"):
                move = of_moves(mesh, topic, "--to", target, "--stitch", *BUDGET)
                moves.append(await asyncio.to_thread(ended, mesh, move))
                await load.progress()
            await load.stop()
            await asyncio.to_thread(
                wait_until, lambda: len(reader.read) >= len(load.acked), "the reader has read all", WITHIN_S
            )
    finally:
        await load.stop()
    assert not load.errors
    through_gateway = await Upstream("the mesh", world.bootstrap).read(topic)
    records = [(each.partition, each.offset, each.value.encode()) for each in through_gateway]
    check_one_log(sorted(records, key=lambda each: each[:2]), load.acked)
    assert sorted(reader.read) == sorted(records), "a reader that goes on reads what one that begins anew reads"
    in_order: dict[int, list[int]] = defaultdict(list)
    for partition, offset, _ in reader.read:
        in_order[partition].append(offset)
    assert all(offsets == sorted(offsets) for offsets in in_order.values())
    copies = [len(await cluster.read(topic)) for cluster in (world.c1, world.c2)]
    assert sum(copies) == len(records), "each record is on one cluster"
    assert all(copies)
    assert parts(mesh, topic) == ["c1", "c2", "c1", "c2"]
    for move in moves:
        certified(mesh, move)
        mesh.meshctl("topic", "move", "verify", move["name"])


async def test_the_undo_of_a_stitched_move_stitches(two_gateways: Mesh, world: World) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS[1:])
    try:
        there = await asyncio.to_thread(ended, mesh, of_moves(mesh, topic, "--to", "c2", "--stitch", *BUDGET))
        await load.progress()
        back = await asyncio.to_thread(ended, mesh, of_moves(mesh, "undo", there["name"]))
        await load.progress()
    finally:
        await load.stop()
    assert not load.errors
    assert back["spec"]["kind"] == "TOPIC_MOVE_KIND_STITCH"
    records = await Upstream("the mesh", world.bootstrap).read(topic)
    check_one_log(sorted((each.partition, each.offset, each.value.encode()) for each in records), load.acked)
    assert parts(mesh, topic) == ["c1", "c2", "c1"]
