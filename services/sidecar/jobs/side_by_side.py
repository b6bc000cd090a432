"""The partitions of a round, whose records are given at the same time, and fail as one."""

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import groupby
from typing import Any, TypeVar

from services.sidecar.records import Partition, RawRecord

T = TypeVar("T")


async def side_by_side(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all coroutines, in their order. If one fails, the others end, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def by_partition(records: Iterable[RawRecord]) -> list[tuple[Partition, list[RawRecord]]]:
    """The records of each partition, in their order."""
    ordered = sorted(records, key=lambda one: (one.topic, one.partition))
    grouped = groupby(ordered, key=lambda one: Partition(one.topic, one.partition))
    return [(partition, list(some)) for partition, some in grouped]
