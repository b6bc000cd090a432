"""What clients should not send: a clean close for them, and nothing for anybody else."""

import asyncio
import struct

import pytest
from structlog.testing import capture_logs

from services.gateway.metrics import refused_requests
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import encode_request, parse_response_header
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from tests.unit.gateway.downstream.conftest import MAX_FRAME_MIB, Stage
from tests.unit.gateway.downstream.test_order import produce, written

GOOD = encode_request(MetadataRequest(None), 9, 1, "bad")


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1) + bytes(20),
        struct.pack(">i", 0) + bytes(20),
        struct.pack(">i", MAX_FRAME_MIB * 1024 * 1024 + 1) + bytes(20),
        b"GET / HTTP/1.1\r\nHost: mesh\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
        struct.pack(">ihhih", 20, 3, 9, 1, 30000) + bytes(10),
        struct.pack(">i", len(GOOD) - 4 - 3) + GOOD[4:-3],
        struct.pack(">ihhih", 14, 0, 9, 1, -1) + bytes([0, 0, 0, 0]),
        struct.pack(">ihhihB", 16, 3, 9, 1, -1, 0) + b"\xff\xff\xff\xff\x07",
    ],
    ids=[
        "negative",
        "empty",
        "oversized",
        "http",
        "tls",
        "lying client id",
        "cut short",
        "empty produce",
        "lying array",
    ],
)
async def test_a_malformed_frame_closes_its_connection_alone(stage: Stage, data: bytes) -> None:
    other = await stage.connect()
    client = await stage.connect()
    with capture_logs() as lines:
        client.send_bytes(data)
        assert await client.closed() == b""
    assert [line["log_level"] for line in lines] == ["warning"]
    assert (await other.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)).error_code == 0
    assert stage.gateway.mesh.budget.held_bytes == 0


async def test_a_size_that_never_arrives_costs_no_memory(stage: Stage) -> None:
    client = await stage.connect()
    client.send_bytes(struct.pack(">i", MAX_FRAME_MIB * 1024 * 1024) + bytes(100))
    assert (await (await stage.connect()).ask(ApiVersionsRequest(), 3, ApiVersionsResponse)).error_code == 0
    assert stage.gateway.mesh.budget.held_bytes <= 1 << 20


async def test_a_large_request_that_does_not_go_on_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.downstream.reading.STALLED_S", 1.5)
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client, slow = await stage.connect(), await stage.connect()
    frame = encode_request(produce("apples", bytes(400_000)), 9, 1, "slow")
    for at in range(0, len(frame), 20_000):  # takes longer, but goes on
        slow.send_bytes(frame[at : at + 20_000])
        await asyncio.sleep(0.09)
    assert await slow.frame()
    client.send_bytes(struct.pack(">i", 1 << 20) + bytes(100_000))
    assert await client.closed() == b""
    assert len(stage.gateway.connections) == 1
    assert stage.gateway.mesh.budget.held_bytes == 0


@pytest.mark.parametrize(("api_key", "version"), [(4711, 0), (0, 99), (67, 0)])
async def test_a_request_that_is_not_served_closes_after_what_came_before(
    stage: Stage, api_key: int, version: int
) -> None:
    client = await stage.connect()
    client.send(MetadataRequest(None), 9)
    with capture_logs() as lines:
        client.send_bytes(struct.pack(">ihhih", 14, api_key, version, 2, 3) + b"who\0")
        client.send(MetadataRequest(None), 9)
        assert len((await client.answer(MetadataResponse)).topics) == 2
        assert await client.closed() == b""
    (line,) = lines
    assert (line["api_key"], line["version"], line["client_id"]) == (api_key, version, "who")


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(stage: Stage) -> None:
    client = await stage.connect()
    body = ApiVersionsRequest("software", "1.0")
    frame = bytearray(encode_request(body, 3, 5, "new"))
    struct.pack_into(">h", frame, 6, 99)
    client.send_bytes(bytes(frame))
    answer = await client.frame()
    header = parse_response_header(answer, 0, len(answer), 18, 0)
    found = decode(ApiVersionsResponse, 0, answer, header.body_offset)
    assert (header.correlation_id, found.error_code, [k.api_key for k in found.api_keys]) == (5, 35, [18])
    assert (await client.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)).error_code == 0


async def test_made_up_versions_do_not_make_counters(stage: Stage) -> None:
    client = await stage.connect()
    for version in range(1000, 1100):
        frame = bytearray(encode_request(ApiVersionsRequest("software", "1.0"), 3, 5, "new"))
        struct.pack_into(">h", frame, 6, version)
        client.send_bytes(bytes(frame))
    for _ in range(100):
        await client.frame()
    client.send_bytes(struct.pack(">ihhih", 14, 4711, 0, 2, 3) + b"who\0")
    await client.closed()
    labels = [sample.labels for metric in refused_requests.collect() for sample in metric.samples]
    assert {"api": "ApiVersions", "version": "unknown"} in labels
    assert not [found for found in labels if found["version"] == "1000" or "4711" in found["api"]]
