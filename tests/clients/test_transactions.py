"""Every client that has transactions uses them over both clusters, and no rule names its transactional id or group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.clients.confluent.driver import ConfluentAdmin, ConfluentClient
from tests.clients.contract import Can, Client, Copying, Isolation, Message, Reading, Sending, TransactionalClient
from tests.clients.matrix import Feature
from tests.clients.world import World
from tests.fixtures.waiting import until

RECORDS = 20


@pytest.mark.feature(Feature.TRANSACTIONS)
@pytest.mark.needs(Can.TRANSACT)
@pytest.mark.parametrize("written_on", ["the other cluster", "both clusters"])
async def test_records_and_offsets_of_a_transaction_count_on_all_clusters_or_on_none(
    client: Client, world: World, written_on: str
) -> None:
    """The source is on c2, as some or all of the targets are; the transactional id is at home on c1."""
    assert isinstance(client, TransactionalClient)
    on_c1, source = await world.topic_on_each()
    _, on_c2 = await world.topic_on_each()
    targets = (on_c1, on_c2) if written_on == "both clusters" else (on_c2,)
    another = ConfluentClient(world.bootstrap)
    values = [f"value-{number}" for number in range(RECORDS)]
    await another.produce([Message(source, value, key=value) for value in values], Sending())
    copying = Copying(world.name("id"), world.name("group"), source, targets, RECORDS)

    await client.copy(replace(copying, commits=False))
    await client.copy(copying)  # the group's offsets were aborted too: it reads the same records again

    reading = Reading(targets, world.name("reader"), RECORDS * len(targets), Isolation.READ_COMMITTED)
    found = Counter((record.topic, record.value) for record in await another.consume(reading))
    assert found == Counter((topic, value) for topic in targets for value in values)
    assert len(await world.c2.read(on_c2)) == RECORDS
    assert len(await world.c1.read(on_c1)) == RECORDS * (on_c1 in targets)
    admin = ConfluentAdmin(world.bootstrap)
    counted: list[int] = []

    async def all_count() -> bool:
        """A coordinator of groups hears of a commit later than the producer does."""
        counted[:] = (await admin.committed(copying.group, [source])).values()
        return sum(counted) == RECORDS

    await until(all_count, f"{RECORDS} records are committed by their offsets")
    await admin.close()
