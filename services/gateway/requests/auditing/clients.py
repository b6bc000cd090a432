"""Which topics are audited, and who takes what was written to them."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

TOPICS_REMEMBERED = 10_000
"""Names for which it is known whether they are audited."""


class AuditedBatch(NamedTuple):
    """Records that a client has written to a partition, or would have. Plain data, for another process."""

    cluster: str
    topic: str
    partition: int
    base_offset: int
    """Of the first record; -1 where nobody said."""
    failure: str
    """Why it was refused; empty if it was not."""
    records: int
    data: bytes


class AuditedTopics:
    """Names, in which `*` stands for any characters."""

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
    """Of all clients of a gateway."""

    topics: AuditedTopics
    take: Callable[[list[AuditedBatch]], None]
    """Returns at once."""
