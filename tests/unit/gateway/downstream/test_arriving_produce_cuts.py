"""However the bytes of a client are cut into reads, a broker gets the same ones. Without sockets."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from services.gateway.downstream.mesh import ClientLimits, Mesh
from services.gateway.frame_stream import GATHER_FROM_BYTES
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, TopicKnowledge
from services.gateway.requests.plan import Call, Lane
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.topic_names import TopicNames
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.wire.frames import SIZE_BYTES, encode_request, encode_response
from services.gateway.wire.messages import ProduceRequest
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.scanner import patch_correlation_id
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.downstream.test_order import produce, written
from tests.unit.gateway.replaceable import FromClient, ToBroker, open_entrance
from tests.unit.gateway.wire.records import batch

SMALL, LARGE = b"small", bytes(range(251)) * 270
HEAD = 150
"""Bytes within which everything stands that is looked at, at either end."""


class OneBroker(Clusters):
    """All calls go to one connection."""

    def __init__(self, connection: BrokerConnection, knowledge: ClusterKnowledge) -> None:
        self.known = {"c1": knowledge}
        self.served = {key: handler.versions for key, handler in HANDLERS.items()}
        self.answer_room = AnswerRoom(1 << 30)
        self._connection = connection

    def follow(self, table: RoutingTable) -> None:
        """One cluster, always."""

    def incarnation(self, cluster: str, lanes: Lanes) -> int:
        return 1

    def pool(self, cluster: str, broker_id: int, lanes: Lanes) -> None:
        """Nothing is shared."""

    def submit(
        self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle, names: TopicNames | None = None
    ) -> None:
        self._connection.submit(call, call.api_key, client_id, settle)


class Between:
    """A client's connection and a broker's, with the test at both ends."""

    def __init__(self) -> None:
        self.asked, self.answered = bytearray(), bytearray()
        self.broker = self._recorded(ToBroker("c1", "test", 1 << 20, 1000, AnswerRoom(1 << 30)), self.asked)
        self.broker._ready = True
        knowledge = ClusterKnowledge("c1", {1: BrokerAddress(1, "test", 1, None)}, down=None)
        knowledge.topics["apples"] = TopicKnowledge("apples", bytes(16), (1,))
        knowledge.versions = {key: handler.versions for key, handler in HANDLERS.items()}
        mesh = Mesh(OneBroker(self.broker, knowledge), "test", ClientLimits())
        rule = RuleVersion(ForwardingRule("r", ExactName("apples"), "c1"), 0.0, 1)
        mesh.run_table(RoutingTable(1, [UpstreamCluster("c1", ("test:1",), 1)], [rule]))
        self.client = self._recorded(FromClient(mesh, set(), open_entrance("test")), self.answered)
        self.client._lanes.connections[LaneKey(1, 1, Lane.PRODUCE)] = self.broker
        self.feed(self.client, encode_request(produce("apples"), 9, 1, "raw"))
        self.answer(1)
        del self.asked[:], self.answered[:]

    def _recorded(self, stream: Any, out: bytearray) -> Any:
        def send(*pieces: bytes) -> None:
            for piece in pieces:
                out.extend(piece)

        stream._fd, stream.send = 1_000_000, send
        return stream

    def feed(self, stream: Any, data: bytes) -> None:
        """One read of so many bytes, or as many as there is room for."""
        at = 0
        while at < len(data):
            buffer = stream.get_buffer(-1)
            size = min(len(buffer), len(data) - at)
            buffer[:size] = data[at : at + size]
            stream.buffer_updated(size)
            at += size

    def answer(self, count: int) -> None:
        for _ in range(count):
            answer = bytearray(encode_response(written(produce("apples")), 9, 0))
            patch_correlation_id(answer, SIZE_BYTES, self.broker._pending[0].correlation_id)
            self.feed(self.broker, bytes(answer))


STREAM = [produce("apples", records) for records in (SMALL, LARGE, LARGE, SMALL, LARGE)]
FRAMES = [bytes(encode_request(message, 9, 77 + index, "raw")) for index, message in enumerate(STREAM)]
WHOLE = b"".join(FRAMES)


def seen_by_broker() -> bytes:
    """The same frames, with the numbers that the gateway gives them."""
    found = []
    for index, frame in enumerate(FRAMES):
        sent = bytearray(frame)
        patch_correlation_id(sent, SIZE_BYTES + 4, 2 + index)
        found.append(bytes(sent))
    return b"".join(found)


def check(cuts: Sequence[int]) -> None:
    between = Between()
    bounds = [0, *sorted(cuts), len(WHOLE)]
    for start, stop in pairwise(bounds):
        between.feed(between.client, WHOLE[start:stop])
    assert bytes(between.asked) == seen_by_broker()
    assert between.client.unanswered == len(STREAM)
    between.answer(len(STREAM))
    assert between.client.unanswered == 0
    at = 0
    for index in range(len(STREAM)):
        (size, number) = (int.from_bytes(between.answered[at + n : at + n + 4], "big") for n in (0, 4))
        assert number == 77 + index
        at += SIZE_BYTES + size
    assert at == len(between.answered)
    mesh = between.client._mesh
    assert not mesh.producing
    assert not mesh.budget.held_bytes
    between.broker._deadlines._timer.cancel()


def edges() -> Iterator[int]:
    """Every place near the beginning and the end of a frame."""
    at = 0
    for frame in FRAMES[:2]:
        yield from range(at + 1, at + min(HEAD, len(frame)))
        yield from range(at + len(frame) - min(20, len(frame)), at + len(frame))
        at += len(frame)


async def test_one_cut_anywhere_near_an_edge() -> None:
    assert len(FRAMES[1]) > GATHER_FROM_BYTES
    for cut in edges():
        if 0 < cut < len(WHOLE):
            check([cut])


async def test_byte_by_byte_around_the_beginning_of_a_large_frame() -> None:
    check(range(len(FRAMES[0]) - 3, len(FRAMES[0]) + HEAD))
    check(range(len(FRAMES[0]) + 1000, len(FRAMES[0]) + 1000 + HEAD))


@given(cuts=st.lists(st.integers(1, len(WHOLE) - 1), max_size=12))
@settings(deadline=None, max_examples=50 * REPEAT, suppress_health_check=list(HealthCheck))
async def test_cuts_anywhere(cuts: list[int]) -> None:
    check(cuts)


@pytest.mark.parametrize("version", range(3, 13))
async def test_a_request_that_does_not_end_where_it_says_is_not_passed_on_in_part(version: int) -> None:
    """Whatever its lengths claim: its plan looks at it, and refuses what it can't read."""
    between = Between()
    between.feed(between.client, encode_request(produce("apples"), version, 2, "raw"))
    answer = bytearray(encode_response(written(produce("apples")), version, 0))
    patch_correlation_id(answer, SIZE_BYTES, between.broker._pending[0].correlation_id)
    between.feed(between.broker, bytes(answer))
    sound = bytes(encode_request(produce("apples", LARGE), version, 3, "raw"))
    records_at = sound.index(bytes(batch(LARGE)))
    for place in (records_at - 1, records_at + 9, records_at + 16):  # length of the records, of the batch; its magic
        del between.asked[:]
        frame = bytearray(sound)
        frame[place] ^= 1
        between.feed(between.client, bytes(frame[:5000]))
        assert not between.asked
        assert between.client._gathered is not None
        client = cast(Any, between.client)
        client._gathered, client._passage = None, None
        client._reading.end()


def test_a_request_that_is_numbered_keeps_its_numbers() -> None:
    """The header of its batch is what is left of it when it has to be told what became of it."""

    async def kept() -> bytes:
        between = Between()
        records = batch(LARGE, producer_id=7, epoch=1, sequence=5)
        message = ProduceRequest(
            None, -1, 1000, [TopicProduceData("apples", partition_data=[PartitionProduceData(0, records)])]
        )
        between.feed(between.client, encode_request(message, 9, 2, "raw")[:2000])
        found = between.client._queue[0].headers
        between.client._ended("seen")
        return cast(bytes, found)

    assert asyncio.run(kept()) == bytes(batch(LARGE, producer_id=7, epoch=1, sequence=5)[:61])
