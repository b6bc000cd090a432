"""Brokers and clients hear the same of each Produce, byte for byte, whether it is forwarded or goes by its plan.

Two gateways get the same requests: random topics, partitions, versions, batches and acks, cut anywhere on their way;
brokers refuse some, and topics move. One of the gateways goes by plans alone.
"""

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from services.gateway.downstream.forwarding import Forwarder
from services.gateway.downstream.in_flight import InFlight
from services.gateway.frame_stream import GATHER_FROM_BYTES
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_request, parse_response_header
from services.gateway.wire.messages import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_order import written
from tests.unit.gateway.wire.records import batch

REQUESTS = 100
TOPICS = ("apples", "bananas", "cherries")
PLACES = [(topic, partition) for topic in ("apples", "bananas") for partition in (0, 1)] + [("cherries", 5)]
"""The last one does not exist."""
REFUSED = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
NOT_LED = (*REFUSED, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""After that clocks tell when a topic that has moved meanwhile may be written to: then none moves."""
COMES_AGAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Producers:
    """What is written, one request after the other."""

    def __init__(self, seed: int, mesh_id: str) -> None:
        self.chance = random.Random(seed)
        self.version = self.chance.choice(range(3, 14))
        self._mesh_id = mesh_id
        self._sequences: dict[tuple[str, int], int] = {}
        self._sent: dict[tuple[str, int], int] = {}
        """Of the request that is on its way."""
        self._again: set[tuple[str, int]] = set()
        """Partitions whose last batch comes again with the next request."""

    def request(self) -> ProduceRequest:
        chance = self.chance
        self._sent.clear()
        places = PLACES[:-1] if chance.random() < 0.95 else PLACES
        most = 1 if chance.random() < 0.3 else len(places)
        by_topic: dict[str, list[PartitionProduceData]] = {}
        written = sorted({*chance.sample(places, chance.randint(1, most)), *self._again})
        chance.shuffle(written)
        for topic, partition in written:
            by_topic.setdefault(topic, []).append(PartitionProduceData(partition, self._records(topic, partition)))
        topics = [
            TopicProduceData(name, mesh_topic_id(self._mesh_id, name), partition_data=data)
            for name, data in by_topic.items()
        ]
        return ProduceRequest(None, chance.choice((-1, -1, -1, -1, 1)), chance.choice((1000, 1000, 1000, 5)), topics)

    @property
    def client_id(self) -> str | None:
        return self.chance.choice(("test", "test", "test", "another", None))

    def hear(self, answer: ProduceResponse) -> None:
        """What was refused comes again."""
        names = {mesh_topic_id(self._mesh_id, topic): topic for topic in TOPICS}
        for topic in answer.responses:
            for part in topic.partition_responses:
                slot = (topic.name or names[topic.topic_id], part.index)
                if part.error_code in COMES_AGAIN and slot in self._sent:
                    self._sequences[slot] = self._sent[slot]
                    self._again.add(slot)
                elif slot in self._sent:
                    self._again.discard(slot)

    def _records(self, topic: str, partition: int) -> bytes | None:
        kind = 1.0 if (topic, partition) in self._again else self.chance.random()
        if kind < 0.02:
            return self.chance.choice((None, b"", bytes(20)))
        payload = bytes(self.chance.choice((0, 5, 130, 3_000, 40_000, 100_000, 150_000)))
        if kind < 0.3 or topic == "cherries":  # a numbered one would have to come back
            return bytes(batch(payload)) * self.chance.choice((1, 1, 2))
        sequence = self._sent[topic, partition] = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + 1
        return bytes(batch(payload, producer_id=7, epoch=0, sequence=sequence))


def answer_by(seed: int, refused: Sequence[ErrorCode], stage: Stage) -> None:
    """Brokers whose answers are told by the seed alone: both gateways hear the same."""
    for there, name in ((stage.c1, "c1"), (stage.c2, "c2")):
        there.scripts[ApiKey.PRODUCE] = partial(_answered, random.Random(f"{seed} {name}"), refused)
        there.scripts[ApiKey.DESCRIBE_PRODUCERS] = lambda header, message: DescribeProducersResponse(
            topics=[
                TopicResponse(topic.name, [PartitionResponse(number) for number in topic.partition_indexes])
                for topic in message.topics
            ]
        )


def _answered(
    chance: random.Random, refused: Sequence[ErrorCode], _: RequestHeader, message: ProduceRequest
) -> ProduceResponse:
    answer = written(message)
    for topic in answer.responses:
        for part in topic.partition_responses:
            part.base_offset = chance.randrange(1 << 40)
            if chance.random() < 0.015:
                part.error_code, part.base_offset = chance.choice(refused), -1
    answer.throttle_time_ms = chance.choice((0, 0, 3))
    return answer


async def told(client: RawClient, frame: bytes, cuts: list[int]) -> bytes:
    """The answer to a request that comes in pieces."""
    for start, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        client.send_bytes(frame[start:stop])
        await client.written()
    return await client.frame()


def written_to(stage: Stage) -> list[list[bytes]]:
    """The bytes of Produce that each of the brokers has got since the last time."""
    found = []
    for there in (stage.c1, stage.c2):
        pairs = zip(there.received, there.bodies, strict=True)
        found.append([body for (header, _), body in pairs if header.api_key == ApiKey.PRODUCE])
        there.received.clear()
        there.bodies.clear()
    return found


def answer_in(frame: bytes, version: int) -> ProduceResponse:
    header = parse_response_header(frame, 0, len(frame), ApiKey.PRODUCE, version)
    return decode(ProduceResponse, version, frame, header.body_offset)


class Planned(Forwarder):
    """Forwards nothing."""

    def forward(self, header: RequestHeader, frame: memoryview, now: float) -> InFlight | None:
        return None

    def begun_in_part(self, beginning: memoryview, missing: int, now: float) -> InFlight | None:
        return None


class Counted(Forwarder):
    """Counts what it forwards."""

    whole = in_part = 0

    def forward(self, header: RequestHeader, frame: memoryview, now: float) -> InFlight | None:
        found = super().forward(header, frame, now)
        self.whole += found is not None
        return found

    def begun_in_part(self, beginning: memoryview, missing: int, now: float) -> InFlight | None:
        found = super().begun_in_part(beginning, missing, now)
        self.in_part += found is not None
        return found


ForwarderT = TypeVar("ForwarderT", bound=Forwarder)


def forwards_by(stage: Stage, kind: type[ForwarderT]) -> ForwarderT:
    """The only connection forwards by this from now on."""
    (connection,) = stage.gateway.connections
    made = kind(connection, stage.gateway.mesh, connection.session, connection._follower, connection._lanes)
    connection._forwarder = made
    return made


@pytest.mark.parametrize("seed", mostly(range(3), range(3, 12)))
@pytest.mark.parametrize("stitched", [False, True])
async def test_all_is_heard_as_by_plans(seed: int, stitched: bool, tmp_path: Path) -> None:
    moves = seed % 2 == 0
    async with AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(staged(tmp_path / name)) for name in ("forwarded", "planned")]
        for stage in stages:
            if stitched:
                stage.stitch_apples(2)
            stage.gateway.mesh.run_table(stage.table(2, apples="c1", bananas="c1"))
            answer_by(seed, REFUSED if moves else NOT_LED, stage)
        clients = [await stage.connect() for stage in stages]
        await until(lambda: all(stage.gateway.connections for stage in stages))
        counted = forwards_by(stages[0], Counted)
        forwards_by(stages[1], Planned)
        producers = Producers(seed, stages[0].gateway.mesh.mesh_id)
        for number in range(REQUESTS):
            if moves and number == REQUESTS * 2 // 3:
                for stage in stages:
                    stage.gateway.mesh.run_table(stage.table(3, apples="c1", bananas="c2"))
            frame = encode_request(producers.request(), producers.version, number, producers.client_id)
            few = (0, 0, 1, 3) if len(frame) < GATHER_FROM_BYTES else (2, 3)
            cuts = sorted(producers.chance.sample(range(1, len(frame)), producers.chance.choice(few)))
            heard = [await told(client, frame, cuts) for client in clients]
            assert heard[0] == heard[1], number
            producers.hear(answer_in(heard[0], producers.version))
            assert written_to(stages[0]) == written_to(stages[1])
        assert counted.whole > REQUESTS / 10, "much of it was to be forwarded"
        assert counted.in_part, "some of it while it came"
