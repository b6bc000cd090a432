"""The log of a topic whose old records stay on the clusters where they are, while new ones go to another cluster.

Clients see one log. The offset of a record for clients is its offset on the cluster of its part, plus the shift of the
part. A part ends where the next part starts; the last part has no end.

A fork begins with parts of another topic's log. It reads them, and writes and deletes in parts of its own only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MOST_PARTS: Final = 16


@dataclass(frozen=True, slots=True)
class LogPart:
    """The part that is on one cluster, from one visit of the topic there (`mesh.routing.visits`)."""

    cluster: str
    topic: str
    """The topic's name there."""
    visit: int
    starts: tuple[int, ...]
    """The first offset of each partition, as clients see it."""
    shifts: tuple[int, ...]
    """The offset that clients see, less the offset on the cluster; by partition."""
    is_past: bool = False
    """The records are those of the topic that the log is a fork of."""
    topic_id: bytes = b""
    """The cluster's id of the topic: one of another id has none of these records. Empty: not known."""

    @property
    def stay(self) -> tuple[str, int, str]:
        """Cluster, visit and name, as a `mesh.routing.Stay` has them."""
        return self.cluster, self.visit, self.topic


@dataclass(frozen=True, slots=True)
class StitchedLog:
    """The parts of a topic's log, the oldest first."""

    topic: str
    parts: tuple[LogPart, ...]
    fork_of: str = ""
    """The topic that the past is from; empty for a log that is no fork."""
    past_bytes_per_second: int = 0
    """The bound for reads of the past by each gateway process; 0: none."""

    def up_to(self, stay: tuple[str, int, str]) -> tuple[LogPart, ...]:
        """The parts of a topic that stays there; empty if its log is not stitched there.

        A cut names the next part before the rules lead the topic to it, so that both come into force at one time.
        """
        for place in range(len(self.parts) - 1, -1, -1):
            if self.parts[place].stay == stay:
                return self.parts[: place + 1]
        return ()


class Policy:
    """All stitched logs of the mesh. They never change."""

    def __init__(self, logs: Iterable[StitchedLog] = (), revision: int = 0) -> None:
        self.revision = revision
        self.logs = {log.topic: log for log in logs}
        self.names: dict[str, dict[str, str]] = {}
        """By cluster the names of topics that have parts there under another name than their own; the newest counts."""
        for log in self.logs.values():
            for part in log.parts:
                if not part.is_past and (part.topic != log.topic or part.cluster in self.names):
                    self.names.setdefault(part.cluster, {})[log.topic] = part.topic

    def parts(self, topic: str, stay: tuple[str, int, str]) -> tuple[LogPart, ...]:
        """See `StitchedLog.up_to`; empty for nearly all topics."""
        log = self.logs.get(topic)
        return () if log is None else log.up_to(stay)
