"""The bound on what waits for delivery."""

import asyncio

from services.sidecar.producing.admission import Admission, Load

LONG = 10.0
AT_ONCE = 0.01


def admission() -> Admission:
    return Admission(max_records=10, max_bytes=1000)


async def test_batches_within_the_bound_enter_at_once() -> None:
    gate = admission()
    assert await gate.enter(Load(6, 10), AT_ONCE)
    assert await gate.enter(Load(4, 10), AT_ONCE)


async def test_a_batch_over_the_bound_is_turned_away_after_its_time() -> None:
    gate = admission()
    assert await gate.enter(Load(10, 10), AT_ONCE)
    assert not await gate.enter(Load(1, 10), AT_ONCE)


async def test_bytes_count_too() -> None:
    gate = admission()
    assert await gate.enter(Load(1, 900), AT_ONCE)
    assert not await gate.enter(Load(1, 200), AT_ONCE)


async def test_a_batch_larger_than_the_bound_enters_alone() -> None:
    gate = admission()
    assert await gate.enter(Load(50, 5000), AT_ONCE)
    assert not await gate.enter(Load(1, 1), AT_ONCE)


async def test_who_waits_enters_in_order_when_room_is_made() -> None:
    gate = admission()
    await gate.enter(Load(10, 10), AT_ONCE)
    order: list[str] = []

    async def enter(name: str, records: int) -> None:
        assert await gate.enter(Load(records, 10), LONG)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(enter("large", 8))
        group.create_task(enter("small", 2))
        await asyncio.sleep(0)
        gate.leave(Load(10, 10))
    assert order == ["large", "small"]


async def test_one_who_gives_up_lets_the_next_in() -> None:
    gate = admission()
    await gate.enter(Load(5, 10), AT_ONCE)
    large = asyncio.create_task(gate.enter(Load(9, 10), LONG))
    await asyncio.sleep(0)
    small = asyncio.create_task(gate.enter(Load(2, 10), LONG))
    await asyncio.sleep(0)
    large.cancel()
    assert await small


async def test_a_request_that_goes_away_just_when_it_is_let_in_leaves_no_trace() -> None:
    gate = admission()
    await gate.enter(Load(10, 10), AT_ONCE)
    waiting = asyncio.create_task(gate.enter(Load(10, 10), LONG))
    await asyncio.sleep(0)
    gate.leave(Load(10, 10))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert await gate.enter(Load(10, 10), AT_ONCE)
