"""Listens to brokers for the markers of transactions that they skip.

A transaction's coordinator writes a marker to each partition of the transaction. If a partition has no leader at
that moment, Kafka 4.3 and 4.4 take the partition for deleted, and skip its marker (KAFKA-20734). The client gets the
answer that its transaction ended. The broker says so in its log, at the level INFO.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from judge.history import Place

SKIPS = re.compile(
    r"Couldn't find leader endpoint for partitions \w*[(\[](?P<places>.*?)[)\]] while trying to send transaction "
    r"markers for (?P<id>.*), these partitions"
)


@dataclass(frozen=True, slots=True)
class Skipped:
    broker: str
    transactional_id: str
    places: tuple[Place, ...]


@dataclass(slots=True)
class SkippedMarkers:
    tell: Callable[[Skipped], None] = lambda skipped: None

    def hear(self, broker: str, line: str) -> None:
        """One line of the log of a broker."""
        if found := SKIPS.search(line):
            self.tell(Skipped(broker, found["id"], tuple(map(_place, found["places"].split(", ")))))


def _place(text: str) -> Place:
    topic, _, partition = text.rpartition("-")
    return Place(topic, int(partition))
