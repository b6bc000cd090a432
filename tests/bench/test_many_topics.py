"""The cost of a Metadata answer about 100,000 topics at a gateway, and how long the event loop stands still for it.

`MESH_BENCH_TOPICS` is how many there are. The answer of the cluster is the usual one: one partition, one replica.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys

import pytest

from services.gateway.requests.mesh.metadata import handle, written_in_steps
from services.gateway.requests.pauses import PAUSE
from services.gateway.requests.plan import Ask, Body, RawResponse, Request, Sent, Unreachable
from services.gateway.serving import COLLECT_AFTER_OBJECTS, COLLECT_ALL_AFTER, COLLECT_YOUNG_AFTER
from services.gateway.upstream.learning import Learning
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import (
    SIZE_BYTES,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from services.gateway.wire.messages import MetadataRequest, MetadataResponse
from services.gateway.wire.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.bench.figures import Sheet, Table
from tests.bench.test_large_table import Watched, watched
from tests.unit.gateway.requests.playbook import World

TOPICS = int(os.environ.get("MESH_BENCH_TOPICS", "100000"))
VERSION = 12
TIMES = 3


@pytest.mark.timeout(300)
def test_an_answer_about_very_many_topics(sheet: Sheet) -> None:
    """In a process of its own, whose collector works as the gateway's."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench.test_many_topics"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    head = ["answer", "s", "CPU s", "longest stall, ms"]
    sheet.add(Table(f"Metadata of {TOPICS:,} topics", head, [line.split("\t") for line in run.stdout.splitlines()]))


def _of_the_cluster() -> RawResponse:
    topics = [
        MetadataResponseTopic(
            name=f"orders.of-shop-{number}",
            topic_id=number.to_bytes(16, "big"),
            partitions=[MetadataResponsePartition(leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])],
        )
        for number in range(1, TOPICS + 1)
    ]
    message = MetadataResponse(brokers=[MetadataResponseBroker(1, "localhost", 9092)], topics=topics)
    frame = memoryview(bytearray(encode_response(message, VERSION, 1)))
    return RawResponse(
        frame, parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.METADATA, VERSION).body_offset, VERSION
    )


async def _answered(world: World, learning: Learning, response: RawResponse) -> Body:
    """As the gateway does it, from the cluster's answer to the client's."""
    frame = memoryview(bytearray(encode_request(MetadataRequest(topics=None), VERSION, 1, "bench")))
    request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
    plan = written_in_steps(handle(request, world.view()), VERSION)
    command, result = plan.send(None), None
    while True:
        if isinstance(command, Ask):
            came: asyncio.Future[RawResponse | Unreachable | Sent] = asyncio.get_running_loop().create_future()
            learning.before(lambda outcome, _, came=came: came.set_result(outcome), of_all_topics=True)(response, True)  # type: ignore[misc]
            outcome = await came
            assert isinstance(outcome, RawResponse)
            result = (outcome.decode(MetadataResponse),)
        else:
            assert command is PAUSE
            await asyncio.sleep(0)
        try:
            command, result = plan.send(result), None
        except StopIteration as end:
            assert isinstance(end.value, Body)
            return end.value


async def _measure() -> None:
    response, world = _of_the_cluster(), World({"c1": ["orders.*"]})
    knowledge = world.clusters["c1"]
    learning = Learning(knowledge, knowledge.learn)
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, COLLECT_YOUNG_AFTER, COLLECT_ALL_AFTER)
    found: list[Watched] = []
    for _ in range(TIMES):
        async with watched() as answering:
            answer = await _answered(world, learning, response)
        found.append(answering)
    assert len(decode(MetadataResponse, VERSION, answer.pieces[0]).topics) == TOPICS
    for number, each in enumerate(found, 1):
        print(number, f"{each.seconds:.2f}", f"{each.cpu_s:.2f}", f"{each.longest_ms:.1f}", sep="\t")


if __name__ == "__main__":
    asyncio.run(_measure())
