"""Fetch over two real clusters, in the words of the protocol: sessions on both sides, sizes, ids."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from services.gateway import metrics
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.codec import encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.talking import talking_to
from tests.unit.gateway.downstream.raw_client import RawClient

MESH = "kafka-mesh"
SOME_PARTITIONS = 12
"""Enough for brokers to be asked for sessions."""
PARTITIONS = 500
"""Of each cluster."""
QUIET_POLL_BYTES = 150
"""An empty request or answer, however many partitions the session has: head, client id, one batch of counts."""
Slot = tuple[str, int]


@dataclass(slots=True)
class Reader:
    """A consumer that keeps to KIP-227, as Java's does: it names what has changed."""

    client: RawClient
    wanted: dict[Slot, int]
    version: int = 18
    session_id: int = 0
    epoch: int = 0
    max_bytes: int = 50 * 1024 * 1024
    told: dict[Slot, int] = field(default_factory=dict)
    """Positions that the gateway knows."""
    request_bytes: int = 0
    answer_bytes: int = 0
    marks: dict[Slot, int] = field(default_factory=dict)
    """High watermarks as told last; -1 where the last thing told was an error."""

    async def begin(self) -> dict[Slot, bytes]:
        """The first answer. Polls on until brokers lead what was just created and all marks have been told."""
        first = await self.poll()
        async with asyncio.timeout(60):
            while min(self.marks.values()) < 0:
                await self.poll()
        return first

    async def poll(self, wait_ms: int = 100) -> dict[Slot, bytes]:
        """The partitions of the next answer with their records; positions move on."""
        request = self._request(wait_ms)
        answer = await self.client.ask(request, self.version, FetchResponse)
        self.request_bytes, self.answer_bytes = len(encode(request, self.version)), len(encode(answer, self.version))
        assert answer.error_code == 0
        self.session_id = answer.session_id
        self.epoch += 1
        found: dict[Slot, bytes] = {}
        names = {self._id(topic): topic for topic, _ in self.wanted}
        for topic in answer.responses:
            for part in topic.partitions:
                slot = (names[topic.topic_id] if self.version >= 13 else topic.topic, part.partition_index)
                self.marks[slot] = -1 if part.error_code else part.high_watermark
                found[slot] = bytes(part.records or b"")
                self.wanted[slot] += count(found[slot])
        return found

    def _request(self, wait_ms: int) -> FetchRequest:
        changed = [slot for slot, offset in self.wanted.items() if self.told.get(slot) != offset]
        gone = [slot for slot in self.told if slot not in self.wanted]
        self.told = dict(self.wanted)
        topics = {topic: self._topic(topic) for topic, _ in changed}
        for slot in changed:
            part = FetchPartition(slot[1], fetch_offset=self.wanted[slot], partition_max_bytes=1 << 20)
            topics[slot[0]].partitions.append(part)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[
                ForgottenTopic("" if self.version >= 13 else topic, self._id(topic), [n for t, n in gone if t == topic])
                for topic in {topic for topic, _ in gone}
            ],
        )

    def _topic(self, topic: str) -> FetchTopic:
        return FetchTopic(topic) if self.version < 13 else FetchTopic(topic_id=self._id(topic))

    def _id(self, topic: str) -> bytes:
        return mesh_topic_id(MESH, topic) if self.version >= 13 else bytes(16)


def count(records: bytes) -> int:
    """Of those that `write` wrote: value and key are the same."""
    return records.count(b"record-") // 2


def upstream_bytes(direction: str) -> float:
    return sum(metrics.upstream_bytes.labels(cluster, direction).total for cluster in ("c1", "c2"))


@pytest.fixture
def on_both(create_topic: Callable[..., None], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Callable[..., None]:
    """A topic of both clusters, or of one."""
    clusters = {"c1": kafka_c1, "c2": kafka_c2}

    def create(topic: str, partitions: int, *names: str) -> None:
        for name in names or clusters:
            create_topic(clusters[name], topic, partitions)

    return create


def slots_of(*topics: str, partitions: int) -> list[Slot]:
    return [(topic, number) for topic in topics for number in range(partitions)]


def write(gateway: RunningGateway, topic: str, number: int, size: int = 0) -> None:
    """Each record a batch of its own."""
    produce(gateway.address, topic, (f"record-{n} {'x' * size}" for n in range(number)), **{"batch.num.messages": 1})


async def read_records(reader: Reader, wanted: int) -> dict[Slot, int]:
    """Poll until so many records have come; how many of each partition."""
    found: dict[Slot, int] = {}
    async with asyncio.timeout(60):
        while sum(found.values()) < wanted:
            for slot, records in (await reader.poll(1000)).items():
                found[slot] = found.get(slot, 0) + count(records)
    assert sum(found.values()) == wanted
    return {slot: number for slot, number in found.items() if number}


async def test_of_a_thousand_partitions_a_poll_names_those_that_changed(
    rules: Rules, start_gateway: StartGateway, on_both: Callable[..., None], apples: str, bananas: str
) -> None:
    await asyncio.gather(
        asyncio.to_thread(on_both, apples, PARTITIONS, "c1"), asyncio.to_thread(on_both, bananas, PARTITIONS, "c2")
    )
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    slots = slots_of(apples, bananas, partitions=PARTITIONS)
    async with talking_to(gateway.address) as client:
        reader = Reader(client, dict.fromkeys(slots, 0))
        assert (await reader.begin()).keys() == set(slots)
        assert reader.session_id

        before = [upstream_bytes(direction) for direction in ("out", "in")]
        assert await reader.poll() == {}
        polled = [upstream_bytes(direction) - was for direction, was in zip(("out", "in"), before, strict=True)]
        assert max(reader.request_bytes, reader.answer_bytes) < QUIET_POLL_BYTES
        assert max(polled) < 2 * 2 * QUIET_POLL_BYTES, "two brokers, each asked twice at most"

        write(gateway, apples, 1)
        write(gateway, bananas, 1)
        assert sorted(topic for topic, _ in await read_records(reader, 2)) == sorted([apples, bananas])
        while await reader.poll():
            pass
        assert max(reader.request_bytes, reader.answer_bytes) < QUIET_POLL_BYTES

        for slot in slots[::2]:
            del reader.wanted[slot]
        assert await reader.poll() == {}
        assert reader.request_bytes < 8 * len(slots[::2]) + QUIET_POLL_BYTES, "what is forgotten is named once"
        assert await reader.poll() == {}
        assert reader.request_bytes < QUIET_POLL_BYTES


@pytest.mark.parametrize("version", [7, 12, 18])
async def test_a_session_outlives_the_move_of_its_topics(
    version: int, rules: Rules, start_gateway: StartGateway, on_both: Callable[..., None], apples: str, bananas: str
) -> None:
    for topic in (apples, bananas):
        on_both(topic, SOME_PARTITIONS)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    slots = slots_of(apples, bananas, partitions=SOME_PARTITIONS)
    async with talking_to(gateway.address) as client:
        reader = Reader(client, dict.fromkeys(slots, 0), version)
        await reader.begin()
        session = reader.session_id
        gateway.move(rules.to("c2", [apples]))
        write(gateway, apples, 20)
        await read_records(reader, 20)
        gateway.move(rules.to("c1", [bananas]))
        write(gateway, bananas, 20)
        found = await read_records(reader, 20)
        assert {topic for topic, _ in found} == {bananas}
        assert reader.session_id == session != 0


async def test_an_answer_has_no_more_than_the_client_takes_and_in_the_end_it_has_all(
    rules: Rules, start_gateway: StartGateway, on_both: Callable[..., None], apples: str, bananas: str
) -> None:
    for topic, cluster in ((apples, "c1"), (bananas, "c2")):
        on_both(topic, 3, cluster)
        rules.to(cluster, [topic])
    gateway = start_gateway(rules.table)
    for topic in (apples, bananas):
        write(gateway, topic, 60, size=1000)
    async with talking_to(gateway.address) as client:
        reader = Reader(client, dict.fromkeys(slots_of(apples, bananas, partitions=3), 0), max_bytes=2500)
        read = 0
        async with asyncio.timeout(60):
            while read < 120:
                answer = await reader.poll(1000)
                assert sum(map(len, answer.values())) <= 2500
                read += sum(map(count, answer.values()))


async def test_what_a_gateway_does_not_know_is_told_as_a_broker_tells_it(
    rules: Rules, start_gateway: StartGateway, on_both: Callable[..., None], apples: str
) -> None:
    """A session of another gateway, and a topic id of another mesh."""
    on_both(apples, 1, "c1")
    gateway = start_gateway(rules.to("c1", [apples]))
    async with talking_to(gateway.address) as client:
        strange = FetchRequest(session_id=77, session_epoch=3, topics=[])
        assert (await client.ask(strange, 18, FetchResponse)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        wanted = [
            FetchTopic(topic_id=mesh_topic_id(mesh, apples), partitions=[FetchPartition(0, partition_max_bytes=1000)])
            for mesh in (MESH, "another mesh")
        ]
        answer = await client.ask(FetchRequest(max_wait_ms=10, min_bytes=1, topics=wanted), 18, FetchResponse)
        assert [topic.partitions[0].error_code for topic in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_ID]
