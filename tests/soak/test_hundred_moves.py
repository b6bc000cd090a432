"""A topic moves to and fro a hundred times in a row, stitched and by copy, and no application notices.

`MESH_MOVES` says how many stitched moves; a tenth as many are by copy. A log has at most 16 parts, so records of old
parts are deleted on the way, as retention does.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its own documented way

from local.layout import STATE_FOLDER
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import Addresses, World
from tests.e2e.test_stitched_moves import check_one_log, parts
from tests.e2e.test_topic_moves import PARTITIONS, Reader, on_c1
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.topic_moves import BUDGET, WITHIN_S, Move, certified, ended, of_moves
from tests.fixtures.waiting import until, wait_until

MOVES = int(os.environ.get("MESH_MOVES", "100"))
COPIES = max(2, MOVES // 10)
CLIENTS = ("java-4.4", "confluent", "aiokafka", "franz-go")
FEW_PARTS = 3
MANY_PARTS = 12
"""Fewer than the 16 that a log can have: its oldest parts are emptied then."""
PAUSE_P99_MS = 250
PAUSE_MOST_MS = 1000
ANSWER_S = 30.0
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def two_gateways(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("hundred") / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        yield mesh


@pytest.fixture
async def world(two_gateways: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(two_gateways))
    yield world
    await world.clean_up()


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = admin.list_offsets({TopicPartition(topic, each): LATEST for each in range(PARTITIONS)})
    return {place.partition: future.result(ANSWER_S).offset for place, future in told.items()}


def delete_up_to(bootstrap: str, topic: str, offsets: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = admin.delete_records([TopicPartition(topic, each, offset) for each, offset in offsets.items()])
    for future in told.values():
        future.result(ANSWER_S)


def figures(kind: str, moves: Sequence[Move]) -> list[int]:
    """The pauses of the moves in ms, the shortest first."""
    pauses = sorted(round(1000 * float(move.get("pause", "0s").rstrip("s"))) for move in moves)
    half, most_of_all = pauses[len(pauses) // 2], pauses[len(pauses) * 99 // 100]
    given_up = sum(int(move.get("cuts_given_up", 0)) for move in moves)
    print(f"{kind}: {len(moves)} moves, pause p50 {half} ms, p99 {most_of_all} ms, most {pauses[-1]} ms; ", end="")
    print(f"{given_up} cuts given up")
    return pauses


def check_order(read: Sequence[tuple[int, int, bytes]]) -> None:
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, offset, _ in read:
        by_partition[partition].append(offset)
    for partition, offsets in by_partition.items():
        assert offsets == list(range(len(offsets))), f"partition {partition}: a record is left out, or is read twice"


async def moved(mesh: Mesh, load: TopicUnderLoad, topic: str, target: str, *options: str) -> Move:
    move = await asyncio.to_thread(of_moves, mesh, topic, "--to", target, *options, *BUDGET)
    done = await asyncio.to_thread(ended, mesh, move)
    await asyncio.to_thread(certified, mesh, move)
    await asyncio.to_thread(mesh.meshctl, "topic", "move", "verify", move["name"])
    await load.progress()
    return done


@pytest.mark.timeout(MOVES * 30 + 300)
async def test_stitched_moves_in_a_row(two_gateways: Mesh, world: World) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    gateways = (mesh.gateway, mesh.endpoints["gateway-2"])
    readers = [Reader(address, topic, world.name("reader")) for address in gateways]
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    moves: list[Move] = []
    begins: list[dict[int, int]] = []
    try:
        with readers[0].running(), readers[1].running():
            for number in range(MOVES):
                target = ("c2", "c1")[number % 2]
                moves.append(await moved(mesh, load, topic, target, "--stitch"))
                begins.append(await asyncio.to_thread(ends, world.bootstrap, topic))
                if len(parts(mesh, topic)) >= MANY_PARTS:
                    known = begins[-FEW_PARTS]

                    def have_read(upto: dict[int, int] = known) -> bool:
                        return all(
                            any(p == partition and o >= offset - 1 for p, o, _ in reversed(reader.read))
                            for reader in readers
                            for partition, offset in upto.items()
                        )

                    await until(have_read, "the readers are behind the old parts", WITHIN_S)
                    await asyncio.to_thread(delete_up_to, world.bootstrap, topic, known)
                    await until(lambda: len(parts(mesh, topic)) <= FEW_PARTS + 1, "old parts leave", WITHIN_S)
            await load.stop()
            for reader in readers:
                await asyncio.to_thread(
                    wait_until,
                    lambda reader=reader: len(reader.read) >= len(load.acked),
                    "the reader has read all",
                    WITHIN_S,
                )
    finally:
        await load.stop()
    pauses = figures("stitched", moves)
    assert not load.errors
    for reader in readers:
        check_order(reader.read)
        check_one_log(sorted(reader.read, key=lambda each: each[:2]), load.acked)
    assert pauses[len(pauses) * 99 // 100] < PAUSE_P99_MS
    assert pauses[-1] < PAUSE_MOST_MS


@pytest.mark.timeout(COPIES * 60 + 300)
async def test_moves_by_copy_in_a_row(two_gateways: Mesh, world: World) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    reader = Reader(mesh.endpoints["gateway-2"], topic, world.name("reader"))
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    moves: list[Move] = []
    try:
        with reader.running():
            for number in range(COPIES):
                moves += [await moved(mesh, load, topic, ("c2", "c1")[number % 2])]
            await load.stop()
            await asyncio.to_thread(
                wait_until, lambda: len(reader.read) >= len(load.acked), "the reader has read all", WITHIN_S
            )
    finally:
        await load.stop()
    pauses = figures("by copy", moves)
    assert not load.errors
    check_order(reader.read)
    check_one_log(sorted(reader.read, key=lambda each: each[:2]), load.acked)
    assert pauses[len(pauses) * 99 // 100] < PAUSE_P99_MS
    assert pauses[-1] < PAUSE_MOST_MS
