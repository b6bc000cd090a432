"""From arrival to outcome: what is on its way at the same time, and what happens when partitions leave."""

import asyncio

from services.sidecar.reactive.flow import Flow
from services.sidecar.reactive.lanes import BatchLimits
from services.sidecar.records import Partition, RawRecord

SLOW, QUICK = Partition("apples", 0), Partition("apples", 1)


def record(partition: Partition, offset: int, key: bytes | None = None) -> RawRecord:
    return RawRecord(partition.topic, partition.partition, offset, 0, key, b"x", [])


class World:
    """A flow whose batches end when a test says so."""

    def __init__(self, lanes: int = 1, max_records: int = 10) -> None:
        self.begun: list[tuple[Partition, list[int]]] = []
        self.told: dict[Partition, int | None] = {}
        self.freed = 0
        self._ends: dict[Partition, asyncio.Event] = {SLOW: asyncio.Event(), QUICK: asyncio.Event()}
        self.settles = 1_000
        """How many of a batch's records are settled, at most."""
        self.flow = Flow(self._process, self._freed, self._settled, BatchLimits(max_records, 1_000, 0.0), lanes)
        self.flow.assigned([SLOW, QUICK])
        self.flow.open()

    def end(self, partition: Partition) -> None:
        self._ends[partition].set()

    async def _process(self, partition: Partition, records: list[RawRecord]) -> int:
        self.begun.append((partition, [one.offset for one in records]))
        await self._ends[partition].wait()
        return min(len(records), self.settles)

    def _freed(self, partition: Partition, records: int, size: int) -> None:
        self.freed += records

    def _settled(self, partition: Partition, next_offset: int | None, records: int) -> None:
        self.told[partition] = next_offset


async def turn() -> None:
    """Whatever can happen now has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_partition_has_one_batch_on_its_way_and_waits_for_no_other() -> None:
    world = World()
    world.flow.arrived([record(SLOW, 0), record(QUICK, 0)])
    await turn()
    world.flow.arrived([record(SLOW, 1), record(QUICK, 1)])
    world.end(QUICK)
    await turn()
    assert world.begun == [(SLOW, [0]), (QUICK, [0]), (QUICK, [1])]
    assert (world.told, world.freed) == ({QUICK: 2}, 2)


async def test_what_arrives_while_a_batch_is_on_its_way_is_the_next_one() -> None:
    world = World()
    world.flow.arrived([record(SLOW, 0)])
    await turn()
    world.flow.arrived([record(SLOW, 1)])
    world.flow.arrived([record(SLOW, 2)])
    world.end(SLOW)
    await turn()
    assert world.begun == [(SLOW, [0]), (SLOW, [1, 2])]
    world.end(SLOW)
    assert await world.flow.quiet(10)


async def test_nothing_begins_while_it_is_shut_and_what_is_on_its_way_ends() -> None:
    world = World()
    world.flow.arrived([record(SLOW, 0)])
    await turn()
    world.flow.shut()
    world.flow.arrived([record(SLOW, 1), record(QUICK, 0)])
    world.end(SLOW)
    assert await world.flow.quiet(10)
    assert (world.begun, world.told) == ([(SLOW, [0])], {SLOW: 1})
    world.end(QUICK)
    world.flow.open()
    assert await world.flow.quiet(10)
    assert world.told == {SLOW: 2, QUICK: 1}


async def test_a_partition_that_leaves_has_time_for_what_is_on_its_way_and_drops_what_waits() -> None:
    world = World(max_records=1)
    world.flow.arrived([record(SLOW, 0), record(SLOW, 1)])
    await turn()
    leaving = asyncio.create_task(world.flow.finish([SLOW], 10))
    await turn()
    world.end(SLOW)
    assert await leaving == {SLOW: 1}
    assert (world.begun, world.flow.partitions) == ([(SLOW, [0])], {QUICK})


async def test_what_does_not_end_in_time_is_not_settled() -> None:
    world = World()
    world.flow.arrived([record(SLOW, 0)])
    await turn()
    assert await world.flow.finish([SLOW], 0) == {}
    world.flow.arrived([record(SLOW, 1)])  # on its way from the client when the partition went
    await turn()
    assert (world.told, world.begun) == ({}, [(SLOW, [0])])


async def test_records_of_a_batch_that_were_not_settled_come_again() -> None:
    world = World()
    world.settles = 2
    world.end(SLOW)
    world.flow.arrived([record(SLOW, offset) for offset in range(5)])
    assert await world.flow.quiet(10)
    assert world.begun == [(SLOW, [0, 1, 2, 3, 4]), (SLOW, [2, 3, 4]), (SLOW, [4])]
    assert world.told == {SLOW: 5}


async def test_lanes_change_while_it_runs_and_nothing_is_lost() -> None:
    world = World()
    world.flow.arrived([record(SLOW, offset, b"key-%d" % offset) for offset in range(20)])
    await turn()
    world.flow.configure(BatchLimits(10, 1_000, 0.0), 4)
    await turn()
    assert len(world.begun) == 1  # none begins before the one that is out has ended
    world.end(SLOW)
    while world.told.get(SLOW) != 20:
        await turn()
    assert len(world.begun) > 2


async def test_a_partition_that_is_lost_and_comes_again_at_once_is_here() -> None:
    world = World()
    world.flow.arrived([record(SLOW, 0)])
    await turn()
    ended = world.flow.drop([SLOW])
    world.flow.assigned([SLOW])
    await ended
    world.flow.arrived([record(SLOW, 0)])
    await turn()
    assert world.begun == [(SLOW, [0]), (SLOW, [0])]
    await world.flow.drop([SLOW])
