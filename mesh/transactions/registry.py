"""The partitions of `mesh.transactions` on a home: partition 0 is the log, the others say which clusters have a part.

Each cluster has four partitions. The index among the four is the remainder of the epoch under which the producer writes
on that cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

TRANSACTIONS_TOPIC: Final = "mesh.transactions"
"""A topic of the mesh itself, on the home of each transactional id."""
LOG_PARTITION: Final = 0
EPOCHS: Final = 4
"""Partitions for each cluster."""


def registry_partition(ordinal: int, epoch: int) -> int:
    """The partition that stands for the cluster of this ordinal, where a producer writes under this epoch."""
    return LOG_PARTITION + 1 + EPOCHS * ordinal + epoch % EPOCHS


def parts_of(partitions: Iterable[int]) -> Mapping[int, set[int]]:
    """By ordinal of a cluster, the remainders of the epochs under which a transaction has a part there."""
    parts: dict[int, set[int]] = {}
    for partition in partitions:
        if partition != LOG_PARTITION:
            ordinal, remainder = divmod(partition - LOG_PARTITION - 1, EPOCHS)
            parts.setdefault(ordinal, set()).add(remainder)
    return parts
