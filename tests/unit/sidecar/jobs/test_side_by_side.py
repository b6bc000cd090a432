"""Work that is done at the same time."""

import asyncio

import pytest

from services.sidecar.jobs.side_by_side import side_by_side


async def test_each_gives_its_own_in_their_order() -> None:
    first_may = asyncio.Event()

    async def first() -> int:
        await first_may.wait()
        return 1

    async def second() -> int:
        first_may.set()
        return 2

    assert await side_by_side([first(), second()]) == [1, 2]


async def test_the_error_of_one_ends_the_others_and_is_the_error_of_all() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        raise KeyError("which")

    with pytest.raises(KeyError, match="which"):
        await side_by_side([waits(), fails()])
    assert ended == ["waits"]
