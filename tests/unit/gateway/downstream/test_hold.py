"""A topic moves: its Produce waits, everything else goes on, and nothing reaches the new cluster too early."""

import asyncio

from mesh import validation
from mesh.routing import ClientIdentity, ClientMatch, ExactName, ForwardingRule, RoutingTable, RuleVersion
from services.gateway.requests.plan import Request
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.metadata import MetadataResponseTopic
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.test_order import gated, produce, written


def by_id(topic_id: bytes) -> Request:
    topic = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, b"")])
    frame = memoryview(bytearray(encode_request(ProduceRequest(None, 1, 1000, [topic]), 13, 7, "test")))
    return Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)


async def test_a_hold_waits_for_the_old_answers_and_releases_to_the_new_cluster(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    stage.c2.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    mesh = stage.gateway.mesh
    client, other = await stage.connect(), await stage.connect()
    client.send(produce("apples", b"old"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    after = stage.table(2, apples="c2", bananas="c2")
    hold = mesh.begin_hold(after)
    client.send(produce("apples", b"held"), 9)
    assert (await other.ask(produce("bananas"), 9, ProduceResponse)).responses[0].name == "bananas"
    assert (await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).error_code == 0
    assert not hold.complete.is_set()
    gate.set()
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    await client.answer(ProduceResponse)
    assert len(stage.c1.requests(ApiKey.PRODUCE)) == 1
    mesh.end_hold(after)
    await client.answer(ProduceResponse)
    moved = [m for m in stage.c2.requests(ApiKey.PRODUCE) if m.topic_data[0].name == "apples"]
    assert [bytes(m.topic_data[0].partition_data[0].records)[61:] for m in moved] == [b"held"]


async def test_topics_named_by_id_are_held_too_also_those_that_are_not_known_yet(stage: Stage) -> None:
    mesh = stage.gateway.mesh

    def waits(topic: str) -> bool:
        return hold.concerns(by_id(mesh_topic_id(mesh.mesh_id, topic)), ClientIdentity())

    hold = mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    assert waits("bananas"), "no cluster has shown a topic yet"
    for knowledge in mesh.clusters.known.values():
        knowledge.learn(MetadataResponse(topics=[MetadataResponseTopic(0, name) for name in ("apples", "bananas")]))
    assert waits("apples")
    assert not waits("bananas")
    mesh.end_hold()


async def test_a_topic_whose_dead_letters_move_is_held_too(stage: Stage) -> None:
    """Otherwise a dead letter could come to the old cluster behind the cut."""
    mesh = stage.gateway.mesh
    rule = validation.Rule("small", "bananas", max_record_bytes=9, dead_letter_topic="apples")
    mesh.memory.validation = validation.Policy((rule,), 1)
    mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    stage.c2.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    client.send(produce("bananas"), 9)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 1)
    assert not mesh.producing, "it has not started"
    assert stage.c2.requests(ApiKey.PRODUCE) == []
    mesh.end_hold()
    assert (await client.answer(ProduceResponse)).responses[0].name == "bananas"


async def test_a_move_that_is_given_up_releases_to_the_old_cluster(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    hold = stage.gateway.mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    assert hold.complete.is_set()
    for _ in range(3):
        client.send(produce("apples"), 9)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 3)
    assert stage.c1.requests(ApiKey.PRODUCE) == []
    stage.gateway.mesh.end_hold()
    for _ in range(3):
        await client.answer(ProduceResponse)
    assert len(stage.c1.requests(ApiKey.PRODUCE)) == 3
    assert stage.gateway.mesh.table.revision == 1


async def test_a_client_that_leaves_does_not_end_the_wait_for_its_answer(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client = await stage.connect()
    client.send(produce("apples"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    client.close()
    await until(lambda: not stage.gateway.connections)
    hold = stage.gateway.mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    assert not hold.complete.is_set()
    gate.set()
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()


async def test_a_second_hold_lets_through_only_what_it_does_not_move(stage: Stage) -> None:
    for scripted in (stage.c1, stage.c2):
        scripted.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    mesh = stage.gateway.mesh
    apples, bananas = await stage.connect(), await stage.connect()
    mesh.begin_hold(stage.table(2, apples="c2", bananas="c1"))
    apples.send(produce("apples"), 9)
    bananas.send(produce("bananas"), 9)
    await until(lambda: sum(connection.unanswered for connection in stage.gateway.connections) == 2)
    after = stage.table(3, apples="c2", bananas="c2")
    mesh.begin_hold(after)
    await bananas.answer(ProduceResponse)
    assert stage.c1.requests(ApiKey.PRODUCE) == []  # not under the old table, while others may run the new one
    mesh.end_hold(after)
    await apples.answer(ProduceResponse)
    assert len(stage.c2.requests(ApiKey.PRODUCE)) == 2


async def test_a_topic_is_held_for_those_clients_alone_for_whom_it_moves(stage: Stage) -> None:
    for scripted in (stage.c1, stage.c2):
        scripted.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    mesh = stage.gateway.mesh
    mine = ForwardingRule("mine", ExactName("apples", client=ClientMatch(client_id="mine")), "c2")
    before = stage.table(1, apples="c1")
    after = RoutingTable(2, before.clusters.values(), [*before.versions, RuleVersion(mine, -1.0, 2)])
    client = await stage.connect()
    mesh.begin_hold(after)
    client.send(produce("apples", b"others"), 9, client_id="others")
    client.send(produce("apples", b"mine"), 9, client_id="mine")
    await client.answer(ProduceResponse)
    assert stage.c2.requests(ApiKey.PRODUCE) == []
    mesh.end_hold(after)
    await client.answer(ProduceResponse)
    assert [len(scripted.requests(ApiKey.PRODUCE)) for scripted in (stage.c1, stage.c2)] == [1, 1]
