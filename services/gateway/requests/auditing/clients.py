"""Which topics are audited, and the function that takes the audited batches."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

TOPICS_REMEMBERED = 10_000
"""Topic names of which the gateway remembers whether they are audited."""


class AuditedBatch(NamedTuple):
    """Records that a client has written to a partition, or would have. Plain data, for another process."""

    cluster: str
    topic: str
    partition: int
    base_offset: int
    """The offset of the first record; -1 if no broker reported an offset."""
    failure: str
    """Why the broker refused the records; empty if it stored them."""
    records: int
    data: bytes


class AuditedTopics:
    """The audited topics, by names in which `*` stands for any characters."""

    def __init__(self, names: Iterable[str]) -> None:
        self._pattern = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            known = self._known[topic] = self._pattern.fullmatch(topic) is not None
        return known


@dataclass(frozen=True, slots=True)
class ClientAudit:
    """The audit of all clients of a gateway."""

    topics: AuditedTopics
    take: Callable[[list[AuditedBatch]], None]
    """Returns at once."""
