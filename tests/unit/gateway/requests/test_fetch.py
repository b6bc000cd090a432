"""Fetch: who is asked for what, when the answer leaves, and what it hides."""

from services.gateway.requests import fetch
from services.gateway.requests.plan import Body, Lane, RawResponse, Stale, Unreachable
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

VERSION = 12


def request(*topics: str, session: int = 0, min_bytes: int = 1) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=1000,
        session_id=session,
        session_epoch=0,
        topics=[FetchTopic(t, partitions=[FetchPartition(0, 5, 42, 5, partition_max_bytes=100)]) for t in topics],
        rack_id="rack",
    )


def data(topic: str, records: bytes = b"", error: int = 0, leader: int = -1) -> FetchableTopicResponse:
    part = PartitionData(0, error, 50, 50, 0, current_leader=LeaderIdAndEpoch(leader, leader), records=records)
    return FetchableTopicResponse(topic, partitions=[part])


def raw(*topics: FetchableTopicResponse) -> RawResponse:
    frame = memoryview(bytearray(encode_response(FetchResponse(responses=list(topics)), VERSION, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), 1, VERSION)
    return RawResponse(frame, header.body_offset, VERSION)


def play(world: World, message: FetchRequest) -> Playbook:
    return Playbook(fetch.handle, message, VERSION, world.view())


def seen(book: Playbook) -> list[tuple[str, int, bytes]]:
    """The answer: topic, error code, records."""
    assert isinstance(book.answer, Body)
    message = decode(FetchResponse, VERSION, b"".join(book.answer.pieces))
    assert (message.session_id, message.error_code) == (0, 0)
    for topic in message.responses:
        assert topic.partitions[0].current_leader == LeaderIdAndEpoch()
    return [(t.topic, t.partitions[0].error_code, bytes(t.partitions[0].records or b"")) for t in message.responses]


TWO = {"c1": ["apples"], "c2": ["bananas"]}


def test_one_leader_is_asked_without_session_epochs_and_rack_and_its_answer_passes() -> None:
    book = play(World({"c1": ["apples"]}), request("apples"))
    (call,) = book.gathers().calls
    message = call.message
    assert isinstance(message, FetchRequest)
    assert (call.lane, call.raw, message.session_id, message.session_epoch, message.rack_id) == (
        Lane.FETCH,
        True,
        0,
        -1,
        "",
    )
    (partition,) = message.topics[0].partitions
    assert (partition.current_leader_epoch, partition.last_fetched_epoch, partition.fetch_offset) == (-1, -1, 42)
    assert (message.max_wait_ms, message.min_bytes, message.max_bytes) == (500, 1, 1000)
    answer = raw(data("apples", b"records"))
    book.answered(answer)
    assert book.answer is answer


def test_the_busy_cluster_is_not_delayed_by_the_idle_one() -> None:
    book = play(World(TWO), request("apples", "bananas"))
    gather = book.gathers()
    assert gather.wait_s == 0.5
    assert not gather.enough([None, None])
    assert not gather.enough([raw(data("apples")), None])
    assert gather.enough([raw(data("apples", b"records")), None])
    book.answered(raw(data("apples", b"records")), None)
    assert seen(book) == [("apples", 0, b"records"), ("bananas", 0, b"")]


def test_the_minimum_counts_over_all_clusters() -> None:
    enough = play(World(TWO), request("apples", "bananas", min_bytes=10)).gathers().enough
    assert not enough([raw(data("apples", b"12345")), None])
    assert enough([raw(data("apples", b"1234567890")), None])
    assert enough([raw(data("apples", b"12345")), raw(data("bananas"))])


def test_an_error_of_a_broker_leaves_at_once() -> None:
    book = play(World(TWO), request("apples", "bananas"))
    out_of_range = raw(data("apples", error=1))
    assert book.gathers().enough([out_of_range, None])
    book.answered(out_of_range, None)
    assert seen(book) == [("apples", 1, b""), ("bananas", 0, b"")]


def test_answers_of_two_clusters_are_one_and_its_sizes_are_shared() -> None:
    book = play(World(TWO), request("bananas", "apples"))
    assert [call.message.max_bytes for call in book.gathers().calls if isinstance(call.message, FetchRequest)] == [
        500,
        500,
    ]
    book.answered(raw(data("bananas", b"b")), raw(data("apples", b"a")))
    assert seen(book) == [("bananas", 0, b"b"), ("apples", 0, b"a")]


def test_equal_positions_take_up_what_was_left_behind() -> None:
    keys = [play(World(TWO), request("apples", "bananas")).gathers().calls[1].resume_key for _ in range(2)]
    assert keys[0] == keys[1]
    other = request("apples", "bananas")
    other.topics[1].partitions[0].fetch_offset = 43
    assert play(World(TWO), other).gathers().calls[1].resume_key != keys[0]


def test_the_order_of_partitions_does_not_matter_to_what_was_left_behind() -> None:
    """librdkafka turns its list of partitions with each Fetch: asking anew each time would queue up long polls."""
    world = World({"c1": ["apples"], "c2": ["bananas", "berries"]})
    one = play(world, request("apples", "bananas", "berries")).gathers().calls[1]
    other = play(world, request("berries", "apples", "bananas")).gathers().calls[0]
    assert (one.cluster, one.resume_key) == (other.cluster, other.resume_key)


def test_a_leader_that_moved_is_doubted_and_its_hint_is_hidden() -> None:
    book = play(World({"c1": ["apples"]}), request("apples"))
    book.answered(raw(data("apples", error=6, leader=3)))
    assert book.noted == [Stale("c1", ("apples",))]
    assert seen(book) == [("apples", 6, b"")]


def test_unrouted_topics_and_dead_clusters_wait_with_the_rest() -> None:
    book = play(World({"c1": ["apples"]}), request("apples", "nowhere"))
    assert len(book.gathers().calls) == 1
    book.answered(raw(data("apples", b"a")))
    assert seen(book) == [("apples", 0, b"a"), ("nowhere", 3, b"")]
    dead = play(World({"c1": ["apples"]}), request("apples"))
    dead.answered(Unreachable("c1", "down"))
    assert (dead.gathers().calls, dead.gathers().wait_s) == ((), 0.5)
    dead.answered()
    assert seen(dead) == [("apples", 6, b"")]
    nowhere = play(World({"c1": []}), request("nowhere"))
    assert (nowhere.gathers().calls, nowhere.gathers().wait_s) == ((), 0.5)
    nowhere.answered()
    assert seen(nowhere) == [("nowhere", 3, b"")]


def test_a_session_that_we_did_not_give_is_unknown() -> None:
    assert play(World({"c1": ["apples"]}), request("apples", session=9)).answer.error_code == 70
