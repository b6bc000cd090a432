"""Work at leisure: one piece at a time, and after each piece a rest in the proportion that was wanted."""

from __future__ import annotations

import asyncio
import time

from mesh.topic_logs.leisure import Leisure

PIECE_S, PIECES, RESTS = 0.01, 4, 2.0


async def test_all_who_share_it_work_for_their_part_of_the_time() -> None:
    leisure, at_work, most = Leisure(RESTS), 0, 0

    async def works() -> None:
        nonlocal at_work, most
        async with leisure.piece():
            at_work += 1
            most = max(most, at_work)
            began = time.monotonic()
            while time.monotonic() < began + PIECE_S:
                await asyncio.sleep(0)
            at_work -= 1

    began = time.monotonic()
    await asyncio.gather(*(works() for _ in range(PIECES)))
    assert time.monotonic() - began >= PIECES * PIECE_S * (1 + RESTS)
    assert most == 1
