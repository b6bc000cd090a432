"""The topic of snapshots, compacted, beside the log. Reads the newest good snapshot, and writes new ones.

A snapshot is a shortcut: nothing here raises what would keep a router from reading the log from its beginning, but
`SnapshotTopicError`, and that within `TIMEOUT`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from mesh.cluster_access import ClusterAccess, reason_of
from mesh.event_log import ROUTER
from mesh.member_keys import MemberKeys
from services.router.agents.home_consumer import close, home_consumer
from services.router.agents.log_topic import SNAPSHOTS_CONFIG, EventLogError, ensure_topic
from services.router.agents.snapshots import Found, Snapshot, SnapshotError, found_in, read

TIMEOUT = 10.0
"""Seconds to find the newest snapshot and to check it, or to write one."""
WINDOWS = (16, 64, 256)
"""Records from the end that are searched for a good snapshot: the newest are there, and compaction leaves few others. A
router that finds none in the last window has none."""

log = structlog.get_logger(__name__)


class SnapshotTopicError(RuntimeError):
    """Snapshots can't be read or written now, and why."""


class SnapshotTopic:
    """The topic of snapshots on the home cluster, and the log that they are of."""

    def __init__(
        self,
        home: ClusterAccess,
        topic: str,
        events_topic: str,
        replication_factor: int,
        keys: MemberKeys | None = None,
    ) -> None:
        """`keys`: only snapshots count that a router has signed."""
        self._keys = keys
        self._home = home
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        self._log = TopicPartition(events_topic, 0)
        self._replication_factor = replication_factor

    async def newest(self) -> Snapshot | None:
        """The newest snapshot that can be read and belongs to the log, if there is one."""
        async with self._reading() as consumer:
            async for found in self._found(consumer):
                try:
                    signatures = None if self._keys is None else self._keys.signatures(ROUTER)
                    return await asyncio.to_thread(read, found, signatures)
                except SnapshotError as error:
                    _ignore(found, str(error))
        return None

    async def newest_there(self) -> Found | None:
        """The newest snapshot that belongs to the log, readable or not."""
        async with self._reading() as consumer:
            async for found in self._found(consumer):
                return found
        return None

    async def write(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """All records of one snapshot, in their order."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await ensure_topic(self._home, self._topic, self._replication_factor, SNAPSHOTS_CONFIG)
                producer = AIOKafkaProducer(
                    bootstrap_servers=list(self._home.bootstrap),
                    acks="all",
                    request_timeout_ms=int(1000 * TIMEOUT),
                    **self._home.for_aiokafka(),
                )
                await producer.start()
                try:
                    for key, value in records:
                        await producer.send_and_wait(self._topic, value, key, partition=0)
                finally:
                    await producer.stop()
        except (KafkaError, EventLogError, TimeoutError, OSError) as error:
            raise SnapshotTopicError(f"snapshots can't be written to {self._topic}: {reason_of(error)}") from error

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Any]:
        consumer = home_consumer(self._home, f"{self._topic}.reader")
        try:
            async with asyncio.timeout(TIMEOUT):
                await consumer.start()
                yield consumer
        except (KafkaError, TimeoutError, OSError) as error:
            raise SnapshotTopicError(f"snapshots can't be read from {self._topic}: {reason_of(error)}") from error
        finally:
            await close(consumer)

    async def _found(self, consumer: Any) -> AsyncIterator[Found]:
        """Snapshots of the log, newest first."""
        if self._topic not in await consumer.topics():
            return
        first, end = await _bounds(consumer, self._partition)
        seen: set[str] = set()
        for window in WINDOWS:
            for found in found_in(await _values(consumer, self._partition, max(first, end - window), end)):
                if found.snapshot_id in seen:
                    continue
                seen.add(found.snapshot_id)
                if await self._belongs(consumer, found):
                    yield found
                else:
                    _ignore(found, "the log has another event where this one ends, or ends before")

    async def _belongs(self, consumer: Any, found: Found) -> bool:
        first, end = await _bounds(consumer, self._log)
        if not first <= found.offset < end:
            return False
        return any(found.is_of(event) for event in await _values(consumer, self._log, found.offset, found.offset + 1))


def _ignore(found: Found, reason: str) -> None:
    log.warning("a snapshot is ignored", position=found.position, reason=reason)


async def _bounds(consumer: Any, partition: TopicPartition) -> tuple[int, int]:
    first = (await consumer.beginning_offsets([partition]))[partition]
    return first, (await consumer.end_offsets([partition]))[partition]


async def _values(consumer: Any, partition: TopicPartition, start: int, end: int) -> list[bytes]:
    """The values of the records from `start` to before `end`, as far as there are records."""
    values: list[bytes] = []
    consumer.assign([partition])
    consumer.seek(partition, start)
    while await consumer.position(partition) < end:
        records = (await consumer.getmany(partition, timeout_ms=int(1000 * TIMEOUT))).get(partition, [])
        values += [record.value for record in records if record.offset < end and record.value is not None]
    return values
