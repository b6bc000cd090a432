"""Brokers and clients hear the same of each Fetch, byte for byte, whether it is forwarded or goes by its plan.

Two gateways get the same requests: random partitions, positions and versions, in sessions and without. Brokers have
records, errors, hints and sessions of their own, and topics move. One of the gateways goes by plans alone.
"""

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from services.gateway.downstream.fetch_forwarding import FetchForwarder
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_request, parse_response_header
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.wire.records import batch

REQUESTS = 80
TOPICS = ("apples", "bananas")
Slot = tuple[str, int]
ERRORS = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
ALL_BYTES = 3 << 20
"""A client that waits for this many bytes waits for all brokers: the order of their answers shows nowhere."""
WITHOUT_A_SESSION = -1


@dataclass
class Reader:
    """The requests of a client, one after the other; the same for both gateways but for the sessions' ids."""

    chance: random.Random
    mesh_id: str
    version: int
    partitions: int
    sessions: bool
    wanted: dict[Slot, int] = field(default_factory=dict)
    epoch: int = 0

    def next(self) -> FetchRequest:
        chance, full = self.chance, self.epoch in (0, WITHOUT_A_SESSION)
        if self.sessions and self.epoch > 0 and chance.random() < 0.04:
            full, self.epoch = True, 0
        if not self.sessions:
            self.epoch = WITHOUT_A_SESSION
        before = dict(self.wanted)
        if full and (not before or chance.random() < 0.3):
            slots = [(topic, number) for topic in TOPICS for number in range(self.partitions)]
            one = [slots[chance.randrange(len(slots))]]
            self.wanted = dict.fromkeys(chance.choice((slots, one, [s for s in slots if s[0] == "apples"])), 40)
        elif not full and chance.random() < 0.1 and len(self.wanted) > 1:
            self.wanted.pop(chance.choice(list(self.wanted)))
        for slot in list(self.wanted):
            if chance.random() < 0.3:
                self.wanted[slot] += 1
        changed = [s for s, at in self.wanted.items() if full or before.get(s) != at]
        message = FetchRequest(
            max_wait_ms=20_000,
            min_bytes=ALL_BYTES,
            max_bytes=ALL_BYTES,
            session_epoch=self.epoch,
            isolation_level=chance.choice((0, 0, 0, 1)),
            topics=[self._topic(topic, [n for t, n in changed if t == topic]) for topic in TOPICS],
            forgotten_topics_data=[
                ForgottenTopic("" if self._by_ids else topic, self._id(topic), [number])
                for topic, number in ([] if full else before.keys() - self.wanted.keys())
            ],
        )
        message.topics = [topic for topic in message.topics if topic.partitions]
        return message

    @property
    def asks_one_broker(self) -> bool:
        return len({topic for topic, _ in self.wanted}) == 1

    @property
    def _by_ids(self) -> bool:
        return self.version >= 13

    def _id(self, topic: str) -> bytes:
        return mesh_topic_id(self.mesh_id, topic) if self._by_ids else bytes(16)

    def _topic(self, topic: str, numbers: list[int]) -> FetchTopic:
        partitions = [FetchPartition(n, -1, self.wanted[topic, n], partition_max_bytes=ALL_BYTES) for n in numbers]
        return FetchTopic("" if self._by_ids else topic, self._id(topic), partitions)


class Told:
    """A broker whose answers are told by the seed alone: both gateways hear the same."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.may_refuse = False
        self.asked: dict[Slot, int] = {}
        self.told: dict[Slot, int] = {}
        self.session = self.epoch = 0

    def answer(self, header: RequestHeader, message: FetchRequest) -> FetchResponse:
        chance, incremental = self.chance, message.session_epoch > 0
        if incremental:
            if chance.random() < 0.05 and self.may_refuse:
                self.session += 1
            if (message.session_id, message.session_epoch) != (self.session, self.epoch):
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            self.asked, self.told, self.epoch = {}, {}, 0
        self.epoch += 1
        self.session += message.session_epoch == 0
        self.asked |= {(t.topic, p.partition): p.fetch_offset for t in message.topics for p in t.partitions}
        for topic in message.forgotten_topics_data:
            for number in topic.partitions:
                self.asked.pop((topic.topic, number), None)
        parts: dict[str, list[PartitionData]] = {}
        for (name, number), offset in self.asked.items():
            part = self._part(number, offset, header.api_version)
            if not incremental or part.records or part.error_code or self.told.get((name, number)) != offset:
                self.told[name, number] = offset
                parts.setdefault(name, []).append(part)
        return FetchResponse(
            throttle_time_ms=chance.choice((0, 3)),
            session_id=0 if message.session_epoch == WITHOUT_A_SESSION else self.session,
            responses=[FetchableTopicResponse(name, partitions=found) for name, found in parts.items()],
        )

    def _part(self, number: int, offset: int, version: int) -> PartitionData:
        chance = self.chance
        size = chance.choice((0, 0, 0, 10, 600, 5_000, 100_000, 200_000) if len(self.asked) < 5 else (0,) * 9 + (700,))
        records = bytes(batch(bytes(size), base_offset=offset)) if size else b""
        part = PartitionData(number, 0, offset + 2, offset + 1, 1 if version >= 5 else -1, records=records)
        if chance.random() < 0.1:
            part.aborted_transactions = [AbortedTransaction(7, offset)]
        if self.may_refuse and chance.random() < 0.02:
            part.error_code, part.records = chance.choice(ERRORS), b""
        if version >= 12 and chance.random() < 0.03:
            part.current_leader = LeaderIdAndEpoch(1, 5)
        return part


def told_by(stage: Stage, seed: int) -> list[Told]:
    brokers = [Told(f"{seed} {name}") for name in ("c1", "c2")]
    for there, broker in zip((stage.c1, stage.c2), brokers, strict=True):
        there.scripts[ApiKey.FETCH] = broker.answer
    return brokers


def asked_for(stage: Stage) -> list[list[bytes]]:
    """The bytes of Fetch that each of the brokers has got since the last time."""
    found = []
    for there in (stage.c1, stage.c2):
        pairs = zip(there.received, there.bodies, strict=True)
        found.append([body for (header, _), body in pairs if header.api_key == ApiKey.FETCH])
        there.received.clear()
        there.bodies.clear()
    return found


def without_session(frame: bytes, version: int) -> tuple[bytes, int]:
    """The answer with 0 in the place of its session, and the session."""
    if version < 7:
        return frame, 0
    at = parse_response_header(frame, 0, len(frame), ApiKey.FETCH, version).body_offset + 6
    return frame[:at] + bytes(4) + frame[at + 4 :], int.from_bytes(frame[at : at + 4], "big")


class Planned(FetchForwarder):
    """Forwards nothing."""

    def place(self, header: RequestHeader, frame: memoryview, now: float) -> FetchInFlight | None:
        return None


class Counted(FetchForwarder):
    """Counts what it forwards."""

    forwarded = of_several = doubted = 0

    def place(self, header: RequestHeader, frame: memoryview, now: float) -> FetchInFlight | None:
        found = super().place(header, frame, now)
        self.forwarded += found is not None
        self.of_several += found is not None and len(found.parts) > 1
        return found

    def _doubt(self, fetch: FetchInFlight) -> None:
        self.doubted += 1
        super()._doubt(fetch)


ForwarderT = TypeVar("ForwarderT", bound=FetchForwarder)


def forwards_by(stage: Stage, kind: type[ForwarderT]) -> ForwarderT:
    """The only connection forwards by this from now on."""
    (connection,) = stage.gateway.connections
    made = kind(
        connection,
        connection._slots,
        stage.gateway.mesh,
        connection.session,
        connection._follower,
        connection._lanes,
    )
    connection._fetches = made
    return made


@pytest.mark.parametrize("seed", mostly(range(4), range(4, 16)))
@pytest.mark.parametrize("stitched", [False, True])
async def test_all_is_heard_as_by_plans(seed: int, stitched: bool, tmp_path: Path) -> None:
    chance = random.Random(seed)
    version, several = chance.choice(range(4, 19)), seed % 2 == 0
    partitions = chance.choice((1, 2, 12))
    tables: tuple[dict[str, str], ...] = (
        {"apples": "c1", "bananas": "c2" if several else "c1"},
        {"apples": "c2", "bananas": "c1" if several else "c2"},
    )
    async with AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(staged(tmp_path / name)) for name in ("forwarded", "planned")]
        for stage in stages:
            if stitched:
                stage.stitch_apples(partitions)
            stage.c1.topics = stage.c2.topics = dict.fromkeys(TOPICS, partitions)
            stage.gateway.mesh.run_table(stage.table(2, **tables[0]))
        brokers = [told_by(stage, seed) for stage in stages]
        clients = [await stage.connect() for stage in stages]
        await until(lambda: all(stage.gateway.connections for stage in stages))
        counted = forwards_by(stages[0], Counted)
        forwards_by(stages[1], Planned)
        mesh_id = stages[0].gateway.mesh.mesh_id
        reader = Reader(chance, mesh_id, version, partitions, sessions=version >= 7 and seed % 4 < 3)
        ids, asked_several = [0, 0], 0
        for number in range(REQUESTS):
            if number and number % 30 == 0:
                for stage in stages:
                    stage.gateway.mesh.run_table(stage.table(2 + number, **tables[number // 30 % 2]))
            message, client_id = reader.next(), chance.choice(("test",) * 9 + ("other",))
            asked_several += several and not reader.asks_one_broker
            heard = []
            for client, told, session_id in zip(clients, brokers, ids, strict=True):
                message.session_id = 0 if message.session_epoch == WITHOUT_A_SESSION else session_id
                for broker in told:
                    broker.may_refuse = reader.asks_one_broker
                client.send_bytes(encode_request(message, version, number, client_id))
                await client.written()
                heard.append(without_session(await client.frame(), version))
            assert heard[0][0] == heard[1][0], number
            assert asked_for(stages[0]) == asked_for(stages[1]), number
            ids = [session_id for _, session_id in heard]
            header = parse_response_header(heard[0][0], 0, len(heard[0][0]), ApiKey.FETCH, version)
            answer = decode(FetchResponse, version, heard[0][0], header.body_offset)
            if answer.error_code or not ids[0]:
                reader.epoch = 0
            else:
                reader.epoch += 1
        assert counted.forwarded > REQUESTS / 4, "much of it was to be forwarded"
        assert counted.of_several or asked_several < REQUESTS / 4
