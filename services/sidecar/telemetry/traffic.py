"""The traffic of the sidecar, counted by topic and operation: produce, consume, deliver. On the event loop.

The client is the sidecar itself, by its service's id. The gateway counts the sidecar's traffic too, as that of any
client, by cluster and rule. Only the sidecar knows the operation of the backend and its duration.
"""

from collections.abc import Sequence

from mesh.traffic.counting import Combination, Counts
from services.sidecar.records import Consumed, Delivered, Outgoing, WriteOutcome


class SidecarTraffic:
    """The traffic of one sidecar."""

    def __init__(self, counts: Counts | None, client: str) -> None:
        """None: nothing is counted."""
        self._counts = counts
        self._client = client

    def produced(self, topic: str, records: int, size: int, seconds: float | None, *, failed: bool) -> None:
        """Counts a batch of the backend with its outcomes; `records` and `size` count the written records only."""
        self._count("produce", topic, records, size, seconds, failed)

    def transacted(
        self, topic: str, records: Sequence[Outgoing], outcomes: Sequence[WriteOutcome], seconds: float
    ) -> None:
        """The records of a topic in a transaction have their outcomes: all are written, or none is."""
        if self._counts is not None:
            written = all(isinstance(outcome, Delivered) for outcome in outcomes)
            size = sum(one.size for one in records)
            self.produced(topic, len(records) * written, size * written, seconds, failed=not written)

    def consumed(self, records: Sequence[Consumed], seconds: float | None) -> None:
        """The backend has asked, and has these; a call of each of their topics, or of none."""
        if self._counts is None:
            return
        sums: dict[str, tuple[int, int]] = {} if records else {"": (0, 0)}
        for record in records:
            count, size = sums.get(record.topic, (0, 0))
            sums[record.topic] = (count + 1, size + record.size)
        for topic, (count, size) in sums.items():
            self._count("consume", topic, count, size, seconds, False)

    def not_consumed(self, seconds: float) -> None:
        """Counts a read of the backend that ended with a fault."""
        self._count("consume", "", 0, 0, seconds, True)

    def delivered(self, topic: str, records: int, size: int, seconds: float, *, failed: bool) -> None:
        """Counts a batch that the backend got; `failed`: the backend does not take all of its records."""
        self._count("deliver", topic, records, size, seconds, failed)

    def _count(self, operation: str, topic: str, records: int, size: int, seconds: float | None, failed: bool) -> None:
        if self._counts is not None:
            who = Combination(client=self._client, topic=topic, api=operation)
            self._counts.count(who, None if seconds is None else seconds * 1000, records, size, int(failed))


NO_TRAFFIC = SidecarTraffic(None, "")
"""Counts nothing."""
