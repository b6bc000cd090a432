"""When the group is told how far its consumer is."""

import asyncio
from collections.abc import Mapping

from services.sidecar.reactive.commits import Commits
from services.sidecar.records import Commit, Partition

APPLES, PEARS = Partition("apples", 0), Partition("pears", 0)


def commits(sent: list[Mapping[Partition, int]], interval: float = 0.0, records: int = 10) -> Commits:
    return Commits(sent.append, interval, records)


async def test_what_is_settled_goes_after_a_while_all_together() -> None:
    sent: list[Mapping[Partition, int]] = []
    made = commits(sent)
    made.settled(APPLES, 1, 1)
    made.settled(PEARS, 3, 1)
    made.settled(APPLES, 2, 1)
    assert sent == []
    await asyncio.sleep(0.01)
    assert sent == [{APPLES: 2, PEARS: 3}]


async def test_many_records_do_not_wait() -> None:
    sent: list[Mapping[Partition, int]] = []
    made = commits(sent, interval=60)
    made.settled(APPLES, 10, 10)
    assert sent == [{APPLES: 10}]
    made.close()


async def test_one_is_under_way_at_a_time_and_what_it_did_not_have_follows() -> None:
    sent: list[Mapping[Partition, int]] = []
    made = commits(sent)
    made.settled(APPLES, 10, 10)
    made.settled(APPLES, 20, 10)
    assert len(sent) == 1
    made.ended([Commit(APPLES, 10)])
    await asyncio.sleep(0.01)
    assert sent == [{APPLES: 10}, {APPLES: 20}]
    made.ended([Commit(APPLES, 20)])
    assert made.due == {}


async def test_one_that_was_refused_goes_again_unless_its_partition_went() -> None:
    sent: list[Mapping[Partition, int]] = []
    made = commits(sent)
    made.settled(APPLES, 10, 5)
    made.settled(PEARS, 10, 5)
    made.forget([PEARS])
    made.ended([])
    await asyncio.sleep(0.01)
    assert sent[1:] == [{APPLES: 10}]
