"""A table with thousands of rules is read in steps, between which the event loop serves others."""

from __future__ import annotations

import asyncio

from mesh.routing.codec import table_from_proto, table_to_proto
from mesh.routing.table_reader import ENTRIES_IN_A_STEP, TableReader
from mesh.rpc import routing
from mesh.steps import done_between

RULES = 1000


def large_table() -> routing.RoutingTable:
    """Each rule has one topic."""
    message = routing.RoutingTable(revision=RULES)
    message.clusters.add(ordinal=1).spec.cluster_name = "c1"
    for number in range(RULES):
        version = message.rule_versions.add(rank=1 + number, from_revision=1 + number)
        version.rule.rule_id, version.rule.target_cluster = f"r{number}", "c1"
        version.rule.match.topic = f"topic-{number}"
    return message


async def test_others_run_after_each_few_rules() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    serving = asyncio.create_task(others())
    try:
        table = await done_between(TableReader().whole(large_table()))
    finally:
        serving.cancel()
    assert len(table.rules) == RULES
    assert turns >= RULES // ENTRIES_IN_A_STEP


async def test_the_table_is_the_one_that_is_read_at_once() -> None:
    message = large_table()
    assert table_to_proto(await done_between(TableReader().whole(large_table()))) == message
    assert table_to_proto(table_from_proto(message)) == message
