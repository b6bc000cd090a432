"""The positions and the lag of a consumer in its partitions.

Kafka is asked rarely; in between, Kafka's last answer holds."""

import time

import structlog
from confluent_kafka import TopicPartition

from services.sidecar.consuming.instance_values import PartitionStatus
from services.sidecar.consuming.membership import Membership
from services.sidecar.consuming.progress import Progress
from services.sidecar.consuming.seeking import ends_of
from services.sidecar.faults import Fault
from services.sidecar.records import Partition

ASK_EVERY_SECONDS = 10.0
ASK_SECONDS = 1.0
"""Bound of each question to Kafka."""
MAX_PARTITIONS = 1_000

log = structlog.get_logger(__name__)


class PartitionLag:
    """The positions and the lag of one consumer. The object belongs to the consumer's thread."""

    def __init__(self, membership: Membership, progress: Progress) -> None:
        self._membership = membership
        self._progress = progress
        self._ends: dict[Partition, int] = {}
        self._asked_at = -ASK_EVERY_SECONDS

    def status(self) -> tuple[PartitionStatus, ...]:
        """One status for each partition."""
        partitions = self._membership.assignment()[:MAX_PARTITIONS]
        if partitions and time.monotonic() - self._asked_at >= ASK_EVERY_SECONDS:
            self._ask(partitions)
        bounds = {one: bound for one in partitions if (bound := self._bounds(one)) is not None}
        return self._progress.status(partitions, bounds)

    def changed(self) -> None:
        """Partitions came or went, or go on elsewhere: the next status asks Kafka."""
        self._asked_at = -ASK_EVERY_SECONDS

    def _ask(self, partitions: list[Partition]) -> None:
        self._asked_at = time.monotonic()
        unknown = [one for one in partitions if one not in self._progress.committed]
        try:
            self._progress.commits(self._membership.committed(unknown, ASK_SECONDS) if unknown else [])
        except Fault as fault:
            log.debug("committed offsets are not known", reason=fault.description)
        if self._membership.rests:  # the client hears of the ends only while it fetches
            self._ends = ends_of(partitions, self._membership.client, ASK_SECONDS)

    def _bounds(self, partition: Partition) -> tuple[int, int] | None:
        """The first offset and the end offset, by Kafka's last answer; None if there was none."""
        low, high = self._membership.client.get_watermark_offsets(
            TopicPartition(partition.topic, partition.partition), cached=True
        )
        end = max(high, self._ends.get(partition, -1))
        return (max(low, 0), end) if end >= 0 else None
