"""Produce: which bytes go where, what comes back, and what is refused so that nothing is lost."""

import pytest

from services.gateway.requests.knowledge import BrokerAddress, TopicKnowledge
from services.gateway.requests.plan import (
    Body,
    Broker,
    Call,
    Close,
    Lane,
    NoAnswer,
    RawResponse,
    Sent,
    Stale,
    Unreachable,
    Verbatim,
)
from services.gateway.requests.records import produce
from services.gateway.requests.records.produce_order import MAYBE_WRITTEN
from services.gateway.requests.records.producer_memory import REFUSAL_SECONDS, SETTLED_SECONDS
from services.gateway.wire.batches import read_batch_header, visit_producer_id
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_response_header
from services.gateway.wire.messages import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.describe_producers import DescribeProducersResponse
from services.gateway.wire.messages.list_offsets import ListOffsetsResponse
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.wire.records import batch

VERSION = 9
NOTHING_STORED = (DescribeProducersResponse(), ListOffsetsResponse(), ListOffsetsResponse())
"""The answers of the last cluster of a topic that has moved, about its producers and its log's ends; see test_seams."""


def request(
    *places: tuple[str, int, bytes | bytearray], acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for topic, partition, records in places:
        topics.setdefault(topic, TopicProduceData(topic)).partition_data.append(
            PartitionProduceData(partition, records)
        )
    return ProduceRequest(transactional_id, acks, 30_000, list(topics.values()))


def raw(*results: tuple[str, int, int], throttle_ms: int = 0) -> RawResponse:
    """A broker's answer: topic, partition, error code."""
    topics: dict[str, TopicProduceResponse] = {}
    for topic, partition, error in results:
        found = PartitionProduceResponse(partition, error, -1 if error else 100 + partition)
        topics.setdefault(topic, TopicProduceResponse(topic)).partition_responses.append(found)
    answer = ProduceResponse(list(topics.values()), throttle_ms)
    frame = memoryview(bytearray(encode_response(answer, VERSION, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), 0, VERSION)
    return RawResponse(frame, header.body_offset, VERSION)


def play(world: World, message: ProduceRequest) -> Playbook:
    return Playbook(produce.handle, message, VERSION, world.view())


def sent(call: Call) -> list[tuple[str, int, bytes]]:
    """What a call carries: topic, partition, records."""
    assert isinstance(call.message, Body)
    body = b"".join(call.message.pieces)
    message = decode(ProduceRequest, VERSION, body)
    return [(t.name, p.index, bytes(p.records or b"")) for t in message.topic_data for p in t.partition_data]


def errors(book: Playbook) -> list[tuple[str, int, int]]:
    return [(t.name, p.index, p.error_code) for t in book.answer.responses for p in t.partition_responses]


def test_a_request_for_one_leader_passes_untouched_and_so_does_its_answer() -> None:
    book = play(World({"c1": ["apples"]}, partitions=2), request(("apples", 0, batch()), ("apples", 1, batch())))
    (call,) = book.asked()
    assert isinstance(call.message, Verbatim)
    assert (call.cluster, call.target, call.lane, call.raw) == ("c1", Broker(1), Lane.PRODUCE, True)
    answer = raw(("apples", 0, 0), ("apples", 1, 0))
    book.answered(answer)
    assert book.answer is answer


def test_a_request_for_two_clusters_is_cut_and_answered_in_the_clients_order() -> None:
    one, two, three = bytes(batch(b"one")), bytes(batch(b"two")), bytes(batch(b"three"))
    world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=2)
    book = play(world, request(("bananas", 1, one), ("apples", 0, two), ("bananas", 0, three)))
    bananas, apples = book.asked()
    assert (bananas.cluster, apples.cluster) == ("c2", "c1")
    assert sent(bananas) == [("bananas", 1, one), ("bananas", 0, three)]
    assert sent(apples) == [("apples", 0, two)]
    book.answered(raw(("bananas", 0, 0), ("bananas", 1, 10)), raw(("apples", 0, 0)))
    assert errors(book) == [("bananas", 1, 10), ("bananas", 0, 0), ("apples", 0, 0)]


def test_clean_answers_of_two_clusters_are_one_answer_and_none_is_opened() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=2)
    book = play(world, request(("bananas", 1, batch()), ("apples", 0, batch()), ("bananas", 0, batch())))
    book.answered(raw(("bananas", 1, 0), ("bananas", 0, 0)), raw(("apples", 0, 0)))
    assert isinstance(book.answer, Body)
    told = decode(ProduceResponse, VERSION, b"".join(book.answer.pieces))
    assert [(t.name, p.index, p.base_offset) for t in told.responses for p in t.partition_responses] == [
        ("bananas", 1, 101),
        ("bananas", 0, 100),
        ("apples", 0, 100),
    ]


@pytest.mark.parametrize("error", [0, 10])
def test_the_client_waits_for_as_long_as_the_slowest_of_several_brokers_wants(error: int) -> None:
    """A broker that slows a client down reads nothing from its connection: requests behind would time out there."""
    world = World({"c1": ["apples"], "c2": ["bananas"], "c3": ["cherries"]})
    book = play(world, request(("apples", 0, batch()), ("bananas", 0, batch()), ("cherries", 0, batch())))
    book.answered(
        raw(("apples", 0, 0), throttle_ms=70), raw(("bananas", 0, error), throttle_ms=90_000), raw(("cherries", 0, 0))
    )
    told = book.answer
    if isinstance(told, Body):
        told = decode(ProduceResponse, VERSION, b"".join(told.pieces))
    assert told.throttle_time_ms == 90_000


@pytest.mark.parametrize("told", [[("bananas", 1, 0)], [("bananas", 1, 0), ("bananas", 0, 0), ("cherries", 0, 0)], []])
def test_of_two_answers_one_that_is_about_other_partitions_is_opened(told: list[tuple[str, int, int]]) -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=2)
    book = play(world, request(("bananas", 1, batch()), ("apples", 0, batch()), ("bananas", 0, batch())))
    book.answered(raw(*told), raw(("apples", 0, 0)))
    missing = {1, 0} - {partition for topic, partition, _ in told if topic == "bananas"}
    assert errors(book) == [
        ("bananas", 1, MAYBE_WRITTEN if 1 in missing else 0),
        ("bananas", 0, MAYBE_WRITTEN if 0 in missing else 0),
        ("apples", 0, 0),
    ]


def test_unrouted_and_missing_partitions_are_refused_and_the_rest_goes_on() -> None:
    world = World({"c1": ["apples"]})
    book = play(world, request(("apples", 0, batch()), ("nowhere", 0, batch()), ("apples", 9, batch())))
    assert sent(book.asked()[0]) == [("apples", 0, bytes(batch()))]
    book.answered(raw(("apples", 0, 0)))
    assert sorted(errors(book)) == [("apples", 0, 0), ("apples", 9, 3), ("nowhere", 0, 3)]


@pytest.mark.parametrize(
    ("never_sent", "code"),
    [(True, ErrorCode.NOT_LEADER_OR_FOLLOWER), (False, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)],
)
def test_a_batch_without_an_answer_is_maybe_written_unless_it_was_never_sent(never_sent: bool, code: ErrorCode) -> None:
    book = play(World({"c1": ["apples"]}), request(("apples", 0, batch())))
    book.answered(Unreachable("c1", "connection lost", never_sent))
    assert errors(book) == [("apples", 0, code)]
    assert Stale("c1", ("apples",)) in book.noted


def test_after_a_refused_batch_later_ones_wait_until_it_comes_back() -> None:
    world = World({"c1": ["apples"]})

    def numbered(sequence: int) -> ProduceRequest:
        return request(("apples", 0, batch(producer_id=1 << 62, epoch=0, sequence=sequence)))

    first = play(world, numbered(0))
    first.answered(Unreachable("c1", "connection lost"))
    assert errors(first) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    later = play(world, numbered(5))
    assert errors(later) == [("apples", 0, 6)]  # without asking anyone
    again = play(world, numbered(0))
    again.answered(raw(("apples", 0, 0)))
    assert isinstance(again.answer, RawResponse)
    last = play(world, numbered(5))
    assert len(last.asked()) == 1


def test_refused_batches_come_back_in_their_order_whatever_was_on_its_way() -> None:
    """A client has several batches on their way; after the first has come back, what follows is no longer in order."""
    world = World({"c1": ["apples"]})

    def numbered(sequence: int, count: int = 1) -> Playbook:
        records = batch(producer_id=1 << 62, epoch=0, sequence=sequence, count=count)
        return play(world, request(("apples", 0, records)))

    for sequence in (5, 6, 7):
        book = numbered(sequence)
        if sequence == 5:
            book.answered(Unreachable("c1", "connection lost"))
        assert errors(book)[0][2] != 0
    numbered(5).answered(raw(("apples", 0, 0)))
    assert errors(numbered(8)) == [("apples", 0, 6)]
    numbered(6, count=2).answered(raw(("apples", 0, 0)))  # librdkafka puts what was not written together anew
    numbered(8).answered(raw(("apples", 0, 0)))
    assert len(numbered(9).asked()) == 1
    assert not world.memory.refusals.any(world.now)


def test_a_refused_batch_that_went_another_way_is_not_waited_for_for_ever() -> None:
    world = World({"c1": ["apples"], "c2": []})

    def numbered(sequence: int) -> ProduceRequest:
        return request(("apples", 0, batch(producer_id=1 << 62, epoch=0, sequence=sequence)))

    play(world, numbered(5)).answered(Unreachable("c1", "connection lost"))
    world.move("apples", "c2")  # the client sends the batch again to the node of c2: on another connection
    world.move("apples", "c1")
    world.now += SETTLED_SECONDS
    later = play(world, numbered(500))
    later.answered(*NOTHING_STORED)
    later.answered(Unreachable("c1", "busy"))  # where it was sent
    assert errors(later) == [("apples", 0, 6)]
    world.now += 30 + REFUSAL_SECONDS  # 30 s: the request's own time-out
    assert len(play(world, numbered(500)).asked()) == 1
    assert not world.memory.refusals.any(world.now)


def test_a_leader_that_moved_counts_as_a_refusal_too() -> None:
    world = World({"c1": ["apples"]})
    book = play(world, request(("apples", 0, batch(producer_id=1, epoch=0, sequence=3))))
    book.answered(raw(("apples", 0, 6)))
    assert errors(book) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)], "its followers may have it"
    assert errors(play(world, request(("apples", 0, batch(producer_id=1, epoch=0, sequence=4))))) == [("apples", 0, 6)]
    other = play(world, request(("apples", 0, batch(producer_id=2, epoch=0, sequence=4))))
    assert len(other.asked()) == 1


def test_without_acks_nothing_is_answered() -> None:
    book = play(World({"c1": ["apples"]}), request(("apples", 0, batch()), acks=0))
    assert book.asked()[0].no_answer
    book.answered(Sent())
    assert book.answer == NoAnswer()


def test_without_acks_a_failure_closes_the_connection() -> None:
    book = play(World({"c1": ["apples"]}), request(("apples", 0, batch()), acks=0))
    book.answered(Unreachable("c1", "down"))
    assert isinstance(book.answer, Close)
    unrouted = play(World({"c1": ["apples"]}), request(("nowhere", 0, batch()), acks=0))
    assert isinstance(unrouted.answer, Close)


def test_from_the_second_visit_on_producer_ids_are_patched() -> None:
    world = World({"c1": ["apples"], "c2": []})
    world.move("apples", "c2")
    world.move("apples", "c1")
    book = play(world, request(("apples", 0, batch(producer_id=1 << 62, epoch=0, sequence=0))))
    book.answered(*NOTHING_STORED)
    (call,) = book.asked()
    assert isinstance(call.message, Verbatim)
    frame = call.message.frame
    at = bytes(frame).index(batch(producer_id=1 << 62, epoch=0, sequence=0)[:12])
    assert read_batch_header(frame, at, len(frame)).producer_id == visit_producer_id(1 << 62, 2)


def test_a_batch_does_not_overtake_one_that_an_earlier_leader_has_not_answered() -> None:
    """The new leader may never have heard of the producer: it would take the later batch for its beginning."""
    world = World({"c1": ["apples"]})
    knowledge = world.clusters["c1"]
    knowledge.brokers[3] = BrokerAddress(3, "c1", 9093, None)
    first = play(world, request(("apples", 0, batch(producer_id=1, epoch=0, sequence=0))))
    knowledge.topics["apples"] = TopicKnowledge("apples", b"apples".ljust(16), (3,))
    second = play(world, request(("apples", 0, batch(producer_id=1, epoch=0, sequence=1))))
    assert errors(second) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    first.answered(raw(("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    knowledge.stale.clear()
    again = play(world, request(("apples", 0, batch(producer_id=1, epoch=0, sequence=0))))
    assert [call.target for call in again.asked()] == [Broker(3)]
    third = play(world, request(("apples", 0, batch(producer_id=1, epoch=0, sequence=1))))
    assert [call.target for call in third.asked()] == [Broker(3)], "behind the first one, to the same leader"
    for book in (again, third):
        book.answered(raw(("apples", 0, 0)))
    assert not world.session.producing


UNVERIFIED = ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_batch_of_a_transaction_that_its_broker_could_not_verify_is_sent_once_more() -> None:
    message = request(("apples", 0, batch()), ("apples", 1, batch(b"more")), transactional_id="payments")
    book = play(World({"c1": ["apples"]}, partitions=2), message)
    book.asked()
    book.answered(raw(("apples", 0, 0), ("apples", 1, UNVERIFIED)))
    (again,) = book.asked()
    assert sent(again) == [("apples", 1, bytes(batch(b"more")))]
    book.answered(raw(("apples", 1, UNVERIFIED)))  # the client does the rest
    assert errors(book) == [("apples", 0, 0), ("apples", 1, UNVERIFIED)]


def test_a_batch_of_a_transaction_that_was_sent_once_more_and_got_no_answer_is_maybe_written() -> None:
    book = play(World({"c1": ["apples"]}), request(("apples", 0, batch()), transactional_id="payments"))
    book.asked()
    book.answered(raw(("apples", 0, UNVERIFIED)))
    book.asked()
    book.answered(Unreachable("c1", "gone"))
    assert errors(book) == [("apples", 0, MAYBE_WRITTEN)]


def test_a_batch_that_its_broker_could_not_verify_overtakes_no_later_batch_of_its_partition() -> None:
    world = World({"c1": ["apples"]})
    first = play(world, request(("apples", 0, batch(producer_id=7, epoch=0, sequence=0)), transactional_id="payments"))
    first.asked()
    later = play(world, request(("apples", 0, batch(producer_id=7, epoch=0, sequence=1)), transactional_id="payments"))
    later.asked()
    first.answered(raw(("apples", 0, UNVERIFIED)))
    assert errors(first) == [("apples", 0, UNVERIFIED)]


def test_too_few_replicas_are_the_clients_to_wait_for_if_there_is_no_transaction() -> None:
    book = play(World({"c1": ["apples"]}), request(("apples", 0, batch())))
    book.asked()
    book.answered(raw(("apples", 0, UNVERIFIED)))
    assert errors(book) == [("apples", 0, UNVERIFIED)]
