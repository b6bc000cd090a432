"""A topic with producers and classic groups on it, for tests that change something underneath.

Producers write at a steady rate; consumers read along, a Java and a librdkafka one as one group, or each for itself.
What a group skips or reads again when its topic moves is not counted here: offsets of two clusters are not comparable.
Counted are errors, that every client gets on, and what the clusters hold in the end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Iterable, Sequence
from typing import Self

from tests.clients import ledger
from tests.clients.ledger import Acked, Stored
from tests.clients.load import Running
from tests.clients.registry import load as load_of
from tests.clients.upstream import Upstream

JAVA, LIBRDKAFKA = "java-4.4", "confluent"
RECORDS_PER_SECOND = 50  # of each producer: each switch meets several records of each, yet easy on two cores
RECORDS_OF_PROGRESS = 25  # of each producer: half a second, longer than a switch


class TopicUnderLoad:
    def __init__(self, topic: str, rate: int) -> None:
        self.topic = topic
        self._rate = rate
        self._producers: list[Running] = []
        self._begun_at: dict[str, float] = {}
        """The time by the event loop's clock before each producer was started."""
        self._consumers: list[Running] = []
        self._stopped = False

    @classmethod
    async def start(
        cls, bootstrap: str, topic: str, group: str, *, other: str | None = None, rate: int = RECORDS_PER_SECOND
    ) -> Self:
        """Java and librdkafka, as one group. Returns when records flow from every producer to every consumer.

        With an `other` address the librdkafka producer and the Java consumer connect there.
        """
        java, librdkafka = load_of(JAVA, bootstrap), load_of(LIBRDKAFKA, other or bootstrap)
        java_there, librdkafka_here = load_of(JAVA, other or bootstrap), load_of(LIBRDKAFKA, bootstrap)
        return await cls._started(
            topic,
            rate,
            producers=[java.producer(topic, rate), librdkafka.producer(topic, rate)],
            consumers=[java_there.consumer(topic, group), librdkafka_here.consumer(topic, group)],
        )

    @classmethod
    async def start_of(
        cls,
        bootstrap: str,
        topic: str,
        group: str,
        clients: Sequence[str],
        *,
        consuming: bool = True,
        rate: int = RECORDS_PER_SECOND,
    ) -> Self:
        """A producer of each of these clients and a consumer in a group of its own: assignors need not agree."""
        loads = {name: load_of(name, bootstrap) for name in clients}
        return await cls._started(
            topic,
            rate,
            producers=[load.producer(topic, rate) for load in loads.values()],
            consumers=[load.consumer(topic, f"{group}-{name}") for name, load in loads.items() if consuming],
        )

    @classmethod
    async def _started(
        cls, topic: str, rate: int, producers: Iterable[Awaitable[Running]], consumers: Iterable[Awaitable[Running]]
    ) -> Self:
        load = cls(topic, rate)
        try:
            for producer in producers:
                begun_at = asyncio.get_running_loop().time()
                load._producers.append(await producer)
                load._begun_at[load._producers[-1].journal.client] = begun_at
            for consumer in consumers:
                load._consumers.append(await consumer)
            await load.progress()
        except BaseException:
            await load.stop()
            raise
        return load

    async def progress(self, records: int = RECORDS_OF_PROGRESS) -> dict[str, str]:
        """Returns when each producer has had records acknowledged that it sent after the call, and each consumer has
        read one of these.

        A producer sends its records at a steady rate, so its number tells when a record was sent at the earliest. An
        acknowledgement does not: a busy client may tell late of a record that was stored before the call. The answer is
        the newest acknowledged record of each producer.
        """
        now = asyncio.get_running_loop().time()
        mark = {client: math.ceil((now - begun_at) * self._rate) for client, begun_at in self._begun_at.items()}
        for producer in self._producers:
            journal, wanted = producer.journal, mark[producer.journal.client] + records
            await journal.wait_until(lambda: journal.newest_acked >= wanted, f"{wanted} acknowledged")  # noqa: B023
        for consumer in self._consumers:
            journal = consumer.journal
            await journal.wait_until(lambda: _is_newer(journal.newest, mark), f"records newer than {mark}")  # noqa: B023
        journals = [producer.journal for producer in self._producers]
        return {journal.client: f"{journal.client}-{journal.newest_acked}" for journal in journals}

    def expect_lost_connections(self) -> None:
        """From now on a client may tell that its connections broke; records that fail are errors as before."""
        for running in (*self._producers, *self._consumers):
            running.journal.connections_may_break = True

    def expect_absent_clusters(self) -> None:
        """From now on the cluster of the topic may be away for a while: a consumer can't commit there then."""
        self.expect_lost_connections()
        for running in self._consumers:
            running.journal.commits_may_fail = True

    async def stop(self) -> None:
        """Stops the producers, whose last records are flushed, then the consumers."""
        if not self._stopped:
            self._stopped = True
            await asyncio.gather(*(producer.stop() for producer in self._producers))
            await asyncio.gather(*(consumer.stop() for consumer in self._consumers))

    @property
    def acked(self) -> list[Acked]:
        return [ack for producer in self._producers for ack in producer.journal.acked]

    @property
    def errors(self) -> dict[str, list[str]]:
        """What the clients reported to their applications."""
        journals = [running.journal for running in (*self._producers, *self._consumers)]
        return {journal.client: journal.errors for journal in journals if journal.errors}

    @property
    def latencies(self) -> dict[str, list[float]]:
        """By producer, the seconds from a record's turn in its rate to its acknowledgement, the shortest first.

        The quickest record is the measure: it counts as 0 s.
        """
        found = {}
        for journal in (producer.journal for producer in self._producers):
            numbers = (int(ack.id.rpartition("-")[2]) for ack in journal.acked)
            late = sorted(at - number / self._rate for number, at in zip(numbers, journal.acked_at, strict=True))
            found[journal.client] = [seconds - late[0] for seconds in late]
        return found

    async def check(self, clusters: Sequence[Upstream]) -> dict[str, Stored]:
        """Stops, and holds all that was acknowledged against what the clusters have; returns the records by id."""
        await self.stop()
        assert not self.errors, f"clients reported errors: {self.errors}"
        stored = [
            Stored(record.value, cluster.name, record.partition, record.offset)
            for cluster in clusters
            for record in await cluster.read(self.topic)
        ]
        ledger.check(self.acked, stored)
        return {record.id: record for record in stored}


def _is_newer(newest: dict[str, int], mark: dict[str, int]) -> bool:
    return any(newest.get(producer, -1) > number for producer, number in mark.items())
