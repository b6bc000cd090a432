"""How many calls there are at a time."""

import asyncio

from services.sidecar.delivering.slots import Slots
from tests.fixtures.waiting import until


async def test_those_who_wait_come_in_by_turns_and_the_number_changes_at_any_time() -> None:
    slots = Slots(1)
    inside: list[int] = []
    leave = [asyncio.Event() for _ in range(4)]

    async def visit(number: int) -> None:
        async with slots:
            inside.append(number)
            await leave[number].wait()

    visits = [asyncio.create_task(visit(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert inside == [0]
    slots.resize(2)
    await asyncio.sleep(0)
    assert inside == [0, 1]
    visits[2].cancel()
    slots.resize(1)
    leave[0].set()
    await asyncio.sleep(0.01)
    assert inside == [0, 1]
    leave[1].set()
    await until(lambda: inside == [0, 1, 3], "the last one is inside")
    leave[3].set()
    await asyncio.gather(*visits, return_exceptions=True)
    assert slots.taken == 0
