"""Produce between versions: clients that name topics by id, and clusters that are older than their clients."""

import pytest

from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Body, Call, Close, RawResponse
from services.gateway.requests.records import produce
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_response_header
from services.gateway.wire.messages import MetadataResponse, ProduceRequest, ProduceResponse
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.wire.records import batch

APPLES, BANANAS = (mesh_topic_id("mesh-id", topic) for topic in ("apples", "bananas"))
STRANGE = b"?" * 16


def request(*topics: bytes | str, acks: int = -1) -> ProduceRequest:
    def data(topic: bytes | str) -> TopicProduceData:
        named = TopicProduceData(topic) if isinstance(topic, str) else TopicProduceData(topic_id=topic)
        named.partition_data.append(PartitionProduceData(0, batch()))
        return named

    return ProduceRequest(None, acks, 30_000, [data(topic) for topic in topics])


def answer(call: Call, *topics: str, error: int = 0) -> RawResponse:
    """The broker's, in the version of the call."""
    message = ProduceResponse(
        [TopicProduceResponse(t, partition_responses=[PartitionProduceResponse(0, error, 7)]) for t in topics]
    )
    frame = memoryview(bytearray(encode_response(message, call.version, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.PRODUCE, call.version)
    return RawResponse(frame, header.body_offset, call.version)


def sent(call: Call) -> ProduceRequest:
    assert isinstance(call.message, Body)
    return decode(ProduceRequest, call.version, b"".join(call.message.pieces))


def seen(book: Playbook, version: int) -> ProduceResponse:
    """The answer as the client reads it."""
    found = book.answer
    if isinstance(found, Body):
        return decode(ProduceResponse, version, b"".join(found.pieces))
    assert isinstance(found, ProduceResponse)
    return found


def test_ids_go_up_as_names_and_come_back_as_ids_without_opening_anything() -> None:
    book = Playbook(produce.handle, request(APPLES), 13, World({"c1": ["apples"]}).view())
    (call,) = book.asked()
    assert call.version == 12
    assert [(t.name, bytes(t.partition_data[0].records or b"")) for t in sent(call).topic_data] == [
        ("apples", bytes(batch()))
    ]
    book.answered(answer(call, "apples"))
    assert isinstance(book.answer, Body)
    (topic,) = seen(book, 13).responses
    assert (topic.topic_id, topic.partition_responses[0].base_offset) == (APPLES, 7)


def test_ids_of_two_clusters_come_back_in_the_clients_order() -> None:
    book = Playbook(produce.handle, request(BANANAS, APPLES), 13, World({"c1": ["apples"], "c2": ["bananas"]}).view())
    bananas, apples = book.asked()
    assert [(call.cluster, sent(call).topic_data[0].name) for call in (bananas, apples)] == [
        ("c2", "bananas"),
        ("c1", "apples"),
    ]
    book.answered(answer(bananas, "bananas"), answer(apples, "apples", error=7))
    told = [(t.topic_id, t.partition_responses[0].error_code) for t in seen(book, 13).responses]
    assert told == [(BANANAS, 0), (APPLES, 7)]


def test_clean_answers_of_two_clusters_come_back_as_one_with_ids_and_none_is_opened() -> None:
    book = Playbook(produce.handle, request(BANANAS, APPLES), 13, World({"c1": ["apples"], "c2": ["bananas"]}).view())
    bananas, apples = book.asked()
    book.answered(answer(bananas, "bananas"), answer(apples, "apples"))
    assert isinstance(book.answer, Body)
    results = [(t.topic_id, t.partition_responses[0].base_offset) for t in seen(book, 13).responses]
    assert results == [(BANANAS, 7), (APPLES, 7)]


def test_an_unknown_id_is_told_and_the_rest_goes_on() -> None:
    book = Playbook(produce.handle, request(STRANGE, APPLES), 13, World({"c1": ["apples"]}).view())
    assert book.waits_for_preliminaries(), "no later Produce may overtake it"
    book.answered(MetadataResponse())  # every cluster was asked for its topics
    (call,) = book.asked()
    assert [t.name for t in sent(call).topic_data] == ["apples"]
    book.answered(answer(call, "apples"))
    told = {t.topic_id: t.partition_responses[0].error_code for t in seen(book, 13).responses}
    assert told == {APPLES: 0, STRANGE: ErrorCode.UNKNOWN_TOPIC_ID}


def test_an_unknown_id_without_acks_closes_the_connection() -> None:
    book = Playbook(produce.handle, request(STRANGE, acks=0), 13, World({"c1": ["apples"]}).view())
    book.answered(MetadataResponse())
    assert isinstance(book.answer, Close)
    assert STRANGE.hex() in book.answer.reason


def test_a_topic_that_is_not_routed_is_unknown_by_name() -> None:
    world = World({"c1": ["apples"]})
    world.clusters["c1"].topics["bananas"] = world.clusters["c1"].topics["apples"]
    book = Playbook(produce.handle, request(BANANAS), 13, world.view())
    assert [t.partition_responses[0].error_code for t in book.answer.responses] == [3]


@pytest.mark.parametrize(("client", "cluster"), [(13, 9), (13, 12), (13, 7), (12, 9), (10, 8), (9, 3), (8, 5), (3, 3)])
def test_an_older_cluster_is_spoken_to_in_its_version_and_a_newer_client_answered_in_its_own(
    client: int, cluster: int
) -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.clusters["c1"].versions[ApiKey.PRODUCE] = VersionRange(0, cluster)
    topics = (APPLES, BANANAS) if client == 13 else ("apples", "bananas")
    book = Playbook(produce.handle, request(*topics), client, world.view())
    old, new = book.asked()
    assert (old.version, new.version) == (cluster, min(client, 12))
    message = sent(old)
    assert (message.acks, message.timeout_ms, message.transactional_id) == (-1, 30_000, None)
    (data,) = message.topic_data
    assert (data.name, data.partition_data[0].index, data.partition_data[0].records) == ("apples", 0, batch())
    book.answered(answer(old, "apples"), answer(new, "bananas"))
    results = [topic.partition_responses[0] for topic in seen(book, client).responses]
    assert [(result.error_code, result.base_offset) for result in results] == [(0, 7), (0, 7)]
