"""A dry run among thousands of clients leaves others their turn."""

from __future__ import annotations

import asyncio

from mesh.routing import ClientIdentity
from services.control.decisions.dry_runs.dry_runs import CLIENTS_PER_TURN, touched
from services.control.domain.members.usage import ClientUse, affected
from tests.unit.control.worlds import table

TURNS = 20


async def test_others_get_their_turn_while_clients_are_looked_at() -> None:
    before, after = table("apples->c1", "pears->c1"), table("apples->c2", "pears->c1")
    topics = frozenset({"apples", "pears"})
    uses = [
        ClientUse("g1", ClientIdentity(client_id=f"shop-{number}"), topics=topics)
        for number in range(TURNS * CLIENTS_PER_TURN)
    ]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    found = await touched(before, after, uses)
    waiting.cancel()
    assert turns >= TURNS - 1
    assert found == affected(before, after, uses)
