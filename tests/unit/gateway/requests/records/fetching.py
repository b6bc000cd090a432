"""What the tests of Fetch say: requests of clients, answers of brokers, and what a client sees."""

from services.gateway.requests.knowledge import BrokerAddress
from services.gateway.requests.plan import Body, Call, RawResponse
from services.gateway.requests.records import fetch
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_response_header
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from tests.unit.gateway.requests.playbook import Playbook, World

TWO = {"c1": ["apples"], "c2": ["bananas"]}


def topic_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


def request(
    *topics: str | tuple[str, int],
    session: int = 0,
    epoch: int = -1,
    min_bytes: int = 1,
    max_bytes: int = 1000,
    rack: str = "",
    ids: bool = False,
) -> FetchRequest:
    """Partition 0 of each topic from offset 42, or the one that is given."""
    wanted = [(topic, 42) if isinstance(topic, str) else topic for topic in topics]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                "" if ids else topic,
                topic_id(topic) if ids else bytes(16),
                [FetchPartition(0, -1, offset, partition_max_bytes=100)],
            )
            for topic, offset in wanted
        ],
        rack_id=rack,
    )


def play(world: World, message: FetchRequest, version: int = 12) -> Playbook:
    return Playbook(fetch.handle, message, version, world.view())


def data(
    topic: str, records: bytes = b"", *, error: int = 0, leader: int = -1, replica: int = -1, end: int = 50
) -> FetchableTopicResponse:
    part = PartitionData(0, error, end, end, 0, preferred_read_replica=replica, records=records)
    part.current_leader = LeaderIdAndEpoch(leader, leader)
    return FetchableTopicResponse(topic, partitions=[part])


def raw(*topics: FetchableTopicResponse, session: int = 0, error: int = 0, version: int = 12) -> RawResponse:
    """A broker's answer."""
    message = FetchResponse(session_id=session, error_code=error, responses=list(topics))
    frame = memoryview(bytearray(encode_response(message, version, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, version)
    return RawResponse(frame, header.body_offset, version)


def asked(call: Call) -> FetchRequest:
    assert isinstance(call.message, FetchRequest)
    return call.message


def positions(call: Call) -> dict[str, int]:
    """Topic -> offset of partition 0, as the call tells the broker."""
    return {topic.topic: topic.partitions[0].fetch_offset for topic in asked(call).topics}


def answer(book: Playbook, version: int = 12) -> FetchResponse:
    """As the client reads it."""
    return answer_of(book.answer, version)


def answer_of(found: object, version: int) -> FetchResponse:
    if isinstance(found, RawResponse):
        return found.decode(FetchResponse)
    if isinstance(found, Body):
        found = decode(FetchResponse, version, b"".join(found.pieces))
    assert isinstance(found, FetchResponse)
    for topic in found.responses:
        for part in topic.partitions:
            assert (part.current_leader, part.preferred_read_replica) == (LeaderIdAndEpoch(), -1)
    return found


def seen(book: Playbook, version: int = 12) -> list[tuple[str, int, bytes]]:
    """Topic, error code and records of each partition in the answer."""
    message = answer(book, version)
    assert message.error_code == 0
    names = {topic_id(topic): topic for topic in ("apples", "bananas", "cherries")}
    return [
        (names.get(t.topic_id, "?") if version >= 13 else t.topic, p.error_code, bytes(p.records or b""))
        for t in message.responses
        for p in t.partitions
    ]


def with_brokers(world: World, cluster: str, *broker_ids: int) -> None:
    """More brokers than the one that leads."""
    brokers = world.clusters[cluster].brokers
    brokers |= {broker: BrokerAddress(broker, cluster, 9092 + broker, None) for broker in broker_ids}
