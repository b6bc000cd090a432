"""The programs of the wire bench, against the gateway's own codec: what they send is Kafka's, and a wrong answer is no
figure."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from local.readiness import KafkaReady
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import batches, crc_is_right
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import (
    SIZE_BYTES,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.api_versions import ApiVersion
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from services.gateway.wire.schema import Struct, api_key_of
from tests.bench.middles import running
from tests.bench.wire.programs import NoProgramsError, Programs, programs
from tests.bench.wire.workloads import PARTITIONS, W3, W5M, W6, Workload
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import do_without
from tests.unit.gateway.wire.records import batch

BOUND_S = 30.0
M = TypeVar("M", bound=Struct)


@pytest.fixture(scope="module")
def made() -> Programs:
    try:
        return programs()
    except NoProgramsError as error:
        do_without(str(error))


def test_a_machine_without_a_compiler_does_without_the_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))

    with pytest.raises(NoProgramsError, match="no-such-compiler"):
        programs()


# --- the load generator, against a broker that answers as a test wants -----------------------------------------------


@dataclass(slots=True)
class Broker:
    """Answers ApiVersions, and everything else as told; `asked` is what it was sent."""

    answer: Callable[[Any], Struct]
    spoil: Callable[[bytearray], None] = lambda frame: None
    asked: list[Any] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await reader.readexactly(SIZE_BYTES)
                frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                writer.write(self._answered(frame))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answered(self, frame: bytes) -> bytes:
        header = parse_request_header(frame, SIZE_BYTES, len(frame))
        if header.api_key == ApiKey.API_VERSIONS:
            spoken = [ApiVersion(key, 0, 12) for key in (ApiKey.PRODUCE, ApiKey.FETCH)]
            return encode_response(ApiVersionsResponse(api_keys=spoken), header.api_version, header.correlation_id)
        cls = ProduceRequest if header.api_key == ApiKey.PRODUCE else FetchRequest
        request = decode(cls, header.api_version, frame, header.body_offset, len(frame))
        self.asked.append(request)
        answer = bytearray(encode_response(self.answer(request), header.api_version, header.correlation_id))
        self.spoil(answer)
        return bytes(answer)


def produced(request: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name, partition_responses=[PartitionProduceResponse(part.index) for part in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )


def fetched(request: FetchRequest) -> FetchResponse:
    records = [batch(), batch(base_offset=1)]
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic.topic,
                partitions=[
                    PartitionData(part.partition, records=b"".join(records), high_watermark=2)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def run_load(made: Programs, broker: Broker, workload: Workload) -> dict[str, Any]:
    """What it tells of a run of no length: each connection gets a few answers."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(BOUND_S):
        port = server.sockets[0].getsockname()[1]
        words = ["--port", str(port), "--warm-up", "0.01", "--seconds", "0.05", *workload.arguments()]
        load = await asyncio.create_subprocess_exec(made.load, *words, stdout=asyncio.subprocess.PIPE)
        said, _ = await load.communicate()
    told: dict[str, Any] = json.loads(said)
    return told


async def test_requests_of_the_load_generator_are_what_a_client_sends(made: Programs) -> None:
    broker = Broker(produced)

    told = await run_load(made, broker, W6)

    assert "wrong" not in told
    assert broker.asked
    for topic, name in zip(broker.asked[0].topic_data, W6.topics, strict=True):
        assert topic.name == name
        assert [part.index for part in topic.partition_data] == list(range(W6.partitions))
        for part in topic.partition_data:
            (header,) = batches(part.records, 0, len(part.records))
            assert crc_is_right(part.records, header)


async def test_fetches_of_the_load_generator_are_what_a_client_sends(made: Programs) -> None:
    broker = Broker(fetched)

    told = await run_load(made, broker, W5M)

    assert "wrong" not in told
    (topic,) = broker.asked[0].topics
    assert (topic.topic, topic.partitions[0].partition_max_bytes) == (W5M.topics[0], W5M.max_bytes)


def other_id(frame: bytearray) -> None:
    frame[SIZE_BYTES + 3] ^= 0x40


def one_byte_more(frame: bytearray) -> None:
    frame += b"\0"
    frame[:SIZE_BYTES] = (len(frame) - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")


def a_flipped_bit(frame: bytearray) -> None:
    frame[frame.index(b"records")] ^= 1


def refused(request: ProduceRequest) -> ProduceResponse:
    response = produced(request)
    response.responses[0].partition_responses[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return response


def without_last_partition(request: ProduceRequest) -> ProduceResponse:
    response = produced(request)
    response.responses[0].partition_responses.pop()
    return response


def of_another_topic(request: ProduceRequest) -> ProduceResponse:
    response = produced(request)
    response.responses[0].name = "b-orders"
    return response


def nothing(request: FetchRequest) -> FetchResponse:
    response = fetched(request)
    response.responses[0].partitions[0].records = None
    return response


@pytest.mark.parametrize(
    ("workload", "broker", "said"),
    [
        (W3, Broker(produced, other_id), "correlation id"),
        (W3, Broker(produced, one_byte_more), "another form"),
        (W3, Broker(refused), "has error 6"),
        (W3, Broker(without_last_partition), "not all partitions"),
        (W3, Broker(of_another_topic), "not the topic"),
        (W5M, Broker(fetched, a_flipped_bit), "broken batches"),
        (W5M, Broker(nothing), "bytes of records: 0"),
    ],
    ids=["number", "size", "error", "partitions", "topic", "crc", "empty"],
)
async def test_a_wrong_answer_is_no_figure(made: Programs, workload: Workload, broker: Broker, said: str) -> None:
    told = await run_load(made, broker, workload)

    assert said in told["wrong"]
    assert "requests" not in told


# --- the sink, asked by the gateway's codec --------------------------------------------------------------------------

Ask = Callable[[Struct, int, type[Any]], Any]


@pytest.fixture(scope="module")
def ask(made: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    port = free_block(1)
    command = [str(made.sink), str(port), str(port), "-1", str(PARTITIONS), "16", "1024"]
    log = tmp_path_factory.mktemp("sink") / "sink.log"
    with running(command, log, KafkaReady(f"127.0.0.1:{port}"), {}):

        def ask(message: Struct, version: int, answer: type[M]) -> M:
            """On a connection of its own: its first request is the one that a sink reads to the last byte."""
            with (
                socket.create_connection(("127.0.0.1", port), BOUND_S) as connection,
                connection.makefile("rb") as answers,
            ):
                connection.sendall(encode_request(message, version, 7, "test"))
                size = answers.read(SIZE_BYTES)
                frame = answers.read(int.from_bytes(size, "big"))
            header = parse_response_header(frame, 0, len(frame), api_key_of(message), version)
            assert header.correlation_id == 7
            return decode(answer, version, frame, header.body_offset, len(frame))

        yield ask


@pytest.mark.parametrize("version", range(5))
def test_sink_tells_what_it_speaks(ask: Ask, version: int) -> None:
    said = ask(ApiVersionsRequest("test", "1"), version, ApiVersionsResponse)

    spoken = {each.api_key: each.max_version for each in said.api_keys}
    assert spoken[ApiKey.PRODUCE] >= W3.version
    assert spoken[ApiKey.FETCH] >= W5M.version


@pytest.mark.parametrize("version", range(1, 13))
def test_sink_leads_every_topic(ask: Ask, version: int) -> None:
    question = MetadataRequest([MetadataRequestTopic(name="apples"), MetadataRequestTopic(name="pears")])

    said = ask(question, version, MetadataResponse)

    assert [topic.name for topic in said.topics] == ["apples", "pears"]
    assert all(len(topic.partitions) == PARTITIONS for topic in said.topics)
    (broker,) = said.brokers
    assert {part.leader_id for topic in said.topics for part in topic.partitions} == {broker.node_id}


@pytest.mark.parametrize("version", range(3, 10))
def test_sink_reads_what_is_produced(ask: Ask, version: int) -> None:
    right, broken = batch(b"right"), batch(b"wrong")
    broken[-1] ^= 1
    parts = [PartitionProduceData(0, right), PartitionProduceData(1, broken), PartitionProduceData(2, right[:-1])]
    request = ProduceRequest(None, -1, 1000, [TopicProduceData("apples", partition_data=parts)])

    said = ask(request, version, ProduceResponse)

    errors = [part.error_code for part in said.responses[0].partition_responses]
    assert errors == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE]


@pytest.mark.parametrize("version", range(4, 13))
def test_sink_brings_whole_batches_within_bounds(ask: Ask, version: int) -> None:
    parts = [FetchPartition(number, -1, 0, partition_max_bytes=60_000) for number in range(3)]
    request = FetchRequest(min_bytes=1, max_bytes=90_000, topics=[FetchTopic("apples", partitions=parts)])

    said = ask(request, version, FetchResponse)

    records = [part.records or b"" for part in said.responses[0].partitions]
    sizes = [len(each) for each in records]
    assert 40_000 < sizes[0] <= 60_000 and 0 < sizes[1] < sizes[0] and sizes[2] == 0
    assert all(crc_is_right(each, header) for each in records for header in batches(each, 0, len(each)))


def test_sink_brings_one_batch_to_who_takes_less(ask: Ask) -> None:
    parts = [FetchPartition(number, -1, 0, partition_max_bytes=1) for number in range(2)]

    said = ask(FetchRequest(min_bytes=1, topics=[FetchTopic("apples", partitions=parts)]), W5M.version, FetchResponse)

    first, second = (part.records or b"" for part in said.responses[0].partitions)
    assert len(list(batches(first, 0, len(first)))) == 1
    assert not second
