"""A topic has moved, and a producer repeats a write whose answer was lost: it is not stored a second time."""

from dataclasses import replace
from typing import cast

import pytest

from mesh.routing import Stay
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Broker, Outcome, RawResponse, Unreachable, Verbatim
from services.gateway.requests.records import produce, producer_memory
from services.gateway.requests.records.producer_memory import (
    DOUBT_SECONDS,
    REFUSAL_SECONDS,
    SEAM_SECONDS,
    SETTLED_SECONDS,
    LastWrite,
    Seams,
)
from services.gateway.requests.records.seams import APART_MS, ASK_SECONDS, GAP_SECONDS, WINDOW
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import visit_producer_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_response_header
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from services.gateway.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.test_produce import VERSION, errors, raw, request
from tests.unit.gateway.wire.records import batch

MINE = (1 << 62) + 7
COUNT = 1
"""Records of a batch in these tests."""
TIME = 1_700_000_000_000


@pytest.fixture
def world() -> World:
    """`apples` has lived on c1 and has moved to c2."""
    world = World({"c1": ["apples"], "c2": []})
    world.move("apples", "c2")
    return world


def produced(world: World, sequence: int, *, epoch: int = 0, time: int = TIME) -> Playbook:
    records = batch(producer_id=MINE, epoch=epoch, sequence=sequence, timestamp=time)
    return Playbook(produce.handle, request(("apples", 0, records)), VERSION, world.view())


def stored(last_sequence: int, producer_id: int = MINE, *, error: int = 0) -> DescribeProducersResponse:
    state = ProducerState(producer_id, 0, last_sequence, TIME)
    described = PartitionResponse(0, error, None, [] if error else [state])
    return DescribeProducersResponse(topics=[TopicResponse("apples", [described])])


NOBODY = DescribeProducersResponse(topics=[TopicResponse("apples", [PartitionResponse(0, 0, None, [])])])


def raw_metadata(topic: str, version: int) -> RawResponse:
    """Broker 1 leads the partition."""
    partition = MetadataResponsePartition(partition_index=0, leader_id=1)
    answer = MetadataResponse(topics=[MetadataResponseTopic(name=topic, partitions=[partition])])
    frame = memoryview(bytearray(encode_response(answer, version, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.METADATA, version)
    return RawResponse(frame, header.body_offset, version)


REPLICATED = ListOffsetsResponse(
    topics=[ListOffsetsTopicResponse("apples", [ListOffsetsPartitionResponse(0, offset=200)])]
)
"""The end of the log and the high watermark of a leader whose replicas have all that it has."""


def said(book: Playbook, outcome: Outcome) -> None:
    """A broker answers what it was asked, with all its replicas in step, or none of it."""
    is_silent = isinstance(outcome, Unreachable)
    book.answered(
        *(
            REPLICATED if isinstance(call.message, ListOffsetsRequest) and not is_silent else outcome
            for call in book.asked()
        )
    )


def told(book: Playbook, last: DescribeProducersResponse, *here: int) -> None:
    """The last cluster says what it has stored, and the new one which producers it knows."""
    said(book, last)
    states = [ProducerState(producer_id, 0, 200, TIME) for producer_id in here]
    said(book, DescribeProducersResponse(topics=[TopicResponse("apples", [PartitionResponse(0, 0, None, states)])]))


def test_the_last_cluster_is_asked_before_the_first_records_go_to_the_new_one(world: World) -> None:
    book = produced(world, 100)
    question, *_ = book.asked()
    assert (question.cluster, question.target) == ("c1", Broker(1))
    assert isinstance(question.message, DescribeProducersRequest)
    assert book.waits_for_preliminaries()
    told(book, stored(99))
    (call,) = book.asked()
    assert (call.cluster, type(call.message)) == ("c2", Verbatim)
    assert not book.waits_for_preliminaries()
    said(book, raw(("apples", 0, 0)))
    assert isinstance(book.answer, RawResponse)


def test_a_repeat_is_answered_as_a_duplicate_and_not_sent(world: World) -> None:
    book = produced(world, 98)
    told(book, stored(99))
    assert errors(book) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    again = produced(world, 99)
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_after_a_newer_batch_nothing_is_looked_for_any_more(world: World) -> None:
    told(produced(world, 99), stored(99))
    newer = produced(world, 100)
    said(newer, raw(("apples", 0, 0)))
    (call,) = produced(world, 50).asked()
    assert call.cluster == "c2"


def test_only_the_repeat_is_held_back_from_a_request(world: World) -> None:
    world.move("bananas", "c2")
    message = request(
        ("apples", 0, batch(producer_id=MINE, epoch=0, sequence=9, timestamp=TIME)),
        ("bananas", 0, batch(producer_id=MINE, epoch=0, sequence=0, timestamp=TIME)),
    )
    book = Playbook(produce.handle, message, VERSION, world.view())
    told(book, stored(9))
    said(book, raw(("bananas", 0, 0)))
    assert errors(book) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER), ("bananas", 0, 0)]


def test_ids_are_compared_as_the_last_visit_has_written_them(world: World) -> None:
    world.move("apples", "c1")
    world.move("apples", "c2")  # the last stay was the second one on c1
    book = produced(world, 9)
    told(book, stored(9, visit_producer_id(MINE, 2)))
    assert errors(book) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


@pytest.mark.parametrize(
    ("sequence", "epoch", "time"),
    [
        pytest.param(9, 1, TIME, id="another epoch"),
        pytest.param((9 - WINDOW) % (1 << 31), 0, TIME, id="too far behind"),
        pytest.param(10, 0, TIME, id="newer"),
    ],
)
def test_what_is_no_repeat_goes_on(world: World, sequence: int, epoch: int, time: int) -> None:
    book = produced(world, sequence, epoch=epoch, time=time)
    told(book, stored(9))
    (call,) = book.asked()
    assert call.cluster == "c2"


def test_a_producer_that_has_gone_on_repeats_nothing_of_another_time(world: World) -> None:
    """After 2^31 records at the new cluster, the sequences have begun again."""
    book = produced(world, 9, time=TIME + APART_MS + 1)
    told(book, stored(9), MINE)
    (call,) = book.asked()
    assert (call.cluster, type(call.message)) == ("c2", Verbatim)


@pytest.mark.parametrize("hours", [-3, 3])
def test_repeats_are_known_whatever_their_timestamps_are(world: World, hours: int) -> None:
    """Timestamps may be those of events, or those of the last cluster itself (LogAppendTime)."""
    time = TIME + hours * 3_600_000
    book = produced(world, 8, time=time)
    told(book, stored(9))
    assert errors(book) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    assert errors(produced(world, 9, time=time)) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    assert errors(produced(world, 11, time=time)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    (call,) = produced(world, 10, time=time).asked()
    assert call.cluster == "c2"


def test_a_later_batch_waits_for_the_one_after_the_last_that_was_stored(world: World) -> None:
    """On another connection or gateway it may come first; the new cluster would take it for the beginning."""
    early = produced(world, 105)
    told(early, stored(99))
    assert errors(early) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    (call,) = produced(world, 100).asked()
    assert call.cluster == "c2"


def test_a_producer_that_has_gone_on_has_no_gap_however_often_its_last_cluster_is_asked(world: World) -> None:
    first = produced(world, 100)
    told(first, stored(99))
    said(first, raw(("apples", 0, 0)))
    second = produced(world, 101)
    said(second, raw(("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)))  # in doubt: asked again when it comes back
    again = produced(world, 101)
    told(again, stored(99))
    (call,) = again.asked()
    assert call.cluster == "c2"


def test_who_has_begun_on_the_new_cluster_skips_nothing(world: World) -> None:
    """By another gateway, or by this one before it was started again: what is in between lies there."""
    book = produced(world, 205)
    told(book, stored(99), MINE)
    (call,) = book.asked()
    assert (call.cluster, type(call.message)) == ("c2", Verbatim)


def test_nobody_is_sent_back_when_the_new_cluster_does_not_tell_whom_it_knows(world: World) -> None:
    book = produced(world, 205)
    said(book, stored(99))
    said(book, Unreachable("c2", "busy"))
    (call,) = book.asked()
    assert type(call.message) is Verbatim


def test_a_batch_that_never_comes_is_not_waited_for_for_ever(world: World) -> None:
    told(produced(world, 105), stored(99))
    world.now += GAP_SECONDS - 1
    again = produced(world, 105)
    told(again, stored(99))
    assert errors(again) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.now += REFUSAL_SECONDS + 1
    at_last = produced(world, 105)
    told(at_last, stored(99))
    (call,) = at_last.asked()
    assert call.cluster == "c2"


def test_the_batch_that_is_waited_for_may_come_by_another_gateway(world: World) -> None:
    """It was on its way when this gateway asked; so the new cluster is asked again when the later one comes back."""
    early = produced(world, 105)
    told(early, stored(99))
    assert errors(early) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    again = produced(world, 105)
    told(again, stored(99), MINE)
    (call,) = again.asked()
    assert (call.cluster, type(call.message)) == ("c2", Verbatim)


def test_a_batch_does_not_overtake_the_one_before_on_another_connection(world: World) -> None:
    told(produced(world, 99), stored(99))
    first = produced(world, 100)
    mine, world.session = world.session, Session("127.0.0.1:6", "test")
    assert errors(produced(world, 101)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    elsewhere, world.session = world.session, mine
    (call,) = produced(world, 101).asked()
    assert call.cluster == "c2", "on the same connection it stays behind"
    said(first, raw(("apples", 0, 0)))
    world.session = elsewhere
    (call,) = produced(world, 102).asked()
    assert call.cluster == "c2"


def test_batches_pass_a_seam_in_the_order_in_which_their_requests_start(world: World) -> None:
    """The last cluster may answer the second one's question first."""
    first = produced(world, 100)
    world.session = Session("127.0.0.1:6", "test")
    second = produced(world, 101)
    said(second, NOBODY)
    assert errors(second) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    told(first, stored(99))
    (call,) = first.asked()
    assert call.cluster == "c2"


def test_nothing_of_a_request_stays_at_the_seam_when_it_has_ended(world: World) -> None:
    book = produced(world, 100)
    told(book, stored(99))
    assert len(world.memory.passages) == 1
    said(book, raw(("apples", 0, 0)))
    given_up = produced(world, 101)
    given_up.close()
    assert len(world.memory.passages) == 0


SLOW = [Unreachable("c1", "no answer within 3 s"), stored(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize("answer", SLOW)
def test_a_last_cluster_that_does_not_tell_now_is_asked_again_when_the_producer_comes_back(
    world: World, answer: Unreachable | DescribeProducersResponse
) -> None:
    """It may have the batch: without its word nobody knows."""
    book = produced(world, 9)
    said(book, answer)
    assert errors(book) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.now += ASK_SECONDS - 0.1
    again = produced(world, 9)
    told(again, stored(9))
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    assert [call.cluster for call in produced(world, 10).asked()] == ["c2"]


@pytest.mark.parametrize("answer", SLOW)
def test_a_last_cluster_that_does_not_tell_holds_nobody_up_for_ever(
    world: World, answer: Unreachable | DescribeProducersResponse
) -> None:
    said(produced(world, 9), answer)
    world.now += ASK_SECONDS
    last_try = produced(world, 9)
    said(last_try, answer)
    (call,) = last_try.asked()
    assert call.cluster == "c2"
    said(last_try, raw(("apples", 0, 0)))
    assert [call.cluster for call in produced(world, 10).asked()] == ["c2"]


def test_a_last_cluster_that_will_not_tell_holds_nothing_up(world: World) -> None:
    book = produced(world, 9)
    said(book, stored(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    (call,) = book.asked()
    assert call.cluster == "c2"
    said(book, raw(("apples", 0, 0)))
    assert [call.cluster for call in produced(world, 10).asked()] == ["c2"]


def test_a_last_cluster_that_has_the_topic_no_more_holds_nothing_up(world: World) -> None:
    del world.clusters["c1"].topics["apples"]
    (call,) = produced(world, 9).asked()
    assert call.cluster == "c2"


def test_who_repeats_while_the_last_cluster_elects_a_leader_is_sent_back(world: World) -> None:
    last = world.clusters["c1"].topics
    last["apples"] = replace(last["apples"], leaders=(None,))
    assert errors(produced(world, 9)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    last["apples"] = replace(last["apples"], leaders=(1,))
    told(again := produced(world, 9), stored(9))
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_records_without_sequences_do_not_wait_for_a_last_cluster_that_does_not_tell(world: World) -> None:
    """Nobody can tell whether they are repeats: it is asked once, and once more when it has had its time."""

    def unnumbered() -> Playbook:
        return Playbook(produce.handle, request(("apples", 0, batch())), VERSION, world.view())

    for _ in range(2):
        book = unnumbered()
        assert {call.cluster for call in book.asked()} == {"c1"}
        said(book, Unreachable("c1", "no answer within 3 s"))
        assert [call.cluster for call in book.asked()] == ["c2"]
        assert [call.cluster for call in unnumbered().asked()] == ["c2"]
        world.now += ASK_SECONDS
    assert [call.cluster for call in unnumbered().asked()] == ["c2"]


def test_where_its_topic_has_stayed_a_batch_does_not_wait_for_the_last_cluster(world: World) -> None:
    told(produced(world, 10), stored(9))
    said(produced(world, 11), Unreachable("c2", "connection lost"))
    again = produced(world, 11)
    said(again, Unreachable("c1", "no answer within 3 s"))
    (call,) = again.asked()
    assert call.cluster == "c2"


def test_a_last_cluster_that_is_down_or_older_than_2_8_is_not_asked(world: World) -> None:
    world.clusters["c1"].down = "connection refused"
    assert [call.cluster for call in produced(world, 9).asked()] == ["c2"]
    world.move("apples", "c1")
    world.clusters["c1"].down = None
    del world.clusters["c2"].versions[ApiKey.DESCRIBE_PRODUCERS]
    assert [call.cluster for call in produced(world, 9).asked()] == ["c1"]


def test_a_last_cluster_that_can_not_be_reached_for_a_moment_is_asked_when_it_is_back(world: World) -> None:
    last = world.clusters["c1"]
    last.down, last.down_since = "connection lost", world.now - 1
    assert errors(produced(world, 9)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    last.down = None
    told(again := produced(world, 9), stored(9))
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_a_last_cluster_that_went_down_and_stays_so_is_not_waited_for(world: World) -> None:
    last = world.clusters["c1"]
    last.down, last.down_since = "connection refused", world.now
    assert errors(produced(world, 9)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.now += ASK_SECONDS
    assert [call.cluster for call in produced(world, 9).asked()] == ["c2"]


def ends(leader: int, high_watermark: int) -> tuple[ListOffsetsResponse, ListOffsetsResponse]:
    def answer(offset: int) -> ListOffsetsResponse:
        partitions = [ListOffsetsPartitionResponse(0, offset=offset)]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("apples", partitions)])

    return answer(leader), answer(high_watermark)


def test_a_repeat_is_stored_only_when_the_replicas_of_the_last_leader_have_it(world: World) -> None:
    """Its producer wants the acknowledgement of all; the leader alone may die with the batch."""
    early = produced(world, 9)
    described, end, high_watermark = early.asked()
    assert isinstance(described.message, DescribeProducersRequest)
    assert [cast(ListOffsetsRequest, call.message).replica_id for call in (end, high_watermark)] == [-2, -1]
    early.answered(stored(9), *ends(10, 9))
    assert errors(early) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    again = produced(world, 9)
    again.answered(stored(9), *ends(10, 10))
    said(again, NOBODY)
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_a_leader_that_never_gives_a_batch_to_its_replicas_has_not_stored_it(world: World) -> None:
    produced(world, 9).answered(stored(9), *ends(10, 9))
    world.now += ASK_SECONDS
    last_try = produced(world, 9)
    last_try.answered(stored(9), *ends(10, 9))
    (call,) = last_try.asked()
    assert call.cluster == "c2"


def test_a_seam_does_not_last_for_ever(world: World) -> None:
    told(produced(world, 9), stored(9))
    world.now += SEAM_SECONDS + 1
    assert [call.cluster for call in produced(world, 9).asked()] == ["c2"]


def test_without_acks_nobody_is_asked(world: World) -> None:
    message = request(("apples", 0, batch(producer_id=MINE, epoch=0, sequence=9)), acks=0)
    (call,) = Playbook(produce.handle, message, VERSION, world.view()).asked()
    assert call.cluster == "c2"


def test_a_batch_without_an_answer_is_looked_for_when_its_broker_has_had_time_to_store_it() -> None:
    """It may still wait in a socket when the producer sends it again, and the topic has moved."""
    world = World({"c1": ["apples"], "c2": []})
    said(produced(world, 9), Unreachable("c1", "connection lost"))
    world.move("apples", "c2")
    world.now += SETTLED_SECONDS - 0.1
    assert errors(produced(world, 9)) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert errors(produced(world, 10)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.now += 0.1
    late = produced(world, 9)
    told(late, stored(9))
    assert errors(late) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    (call,) = produced(world, 10).asked()
    assert call.cluster == "c2"


def test_a_brokers_time_to_store_a_batch_begins_when_its_connection_has_ended() -> None:
    world = World({"c1": ["apples"], "c2": []})
    book = produced(world, 9)
    world.now += SETTLED_SECONDS + 2  # the broker is busy
    said(book, Unreachable("c1", "connection lost"))
    world.move("apples", "c2")
    world.now += 0.2
    assert errors(produced(world, 9)) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    world.now += SETTLED_SECONDS
    late = produced(world, 9)
    told(late, stored(9))
    assert errors(late) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_a_batch_without_an_answer_is_looked_for_though_an_earlier_one_came_back_before_the_move() -> None:
    world = World({"c1": ["apples"], "c2": []})
    for book in [produced(world, sequence) for sequence in (9, 10)]:
        said(book, Unreachable("c1", "connection lost"))
    said(produced(world, 9), raw(("apples", 0, 0)))
    world.move("apples", "c2")
    assert errors(produced(world, 10)) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    world.now += SETTLED_SECONDS
    late = produced(world, 10)
    told(late, stored(10))
    assert errors(late) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_whatever_had_no_answer_may_be_written_also_when_it_is_sent_back() -> None:
    """Told otherwise, librdkafka may cut its records into other batches, which nobody would know for repeats."""
    world = World({"c1": ["apples"], "c2": []})
    under_way = [produced(world, sequence) for sequence in (9, 10, 11)]
    for book in under_way:
        said(book, Unreachable("c1", "connection lost"))
    world.move("apples", "c2")
    world.now += SETTLED_SECONDS
    first = produced(world, 9)
    world.session = Session("127.0.0.1:6", "test")
    early = produced(world, 11)
    told(early, stored(10))
    assert errors(early) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    said(first, stored(10))
    said(first, NOBODY)
    assert errors(first) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    assert errors(produced(world, 10)) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    (call,) = produced(world, 11).asked()
    assert call.cluster == "c2"


def test_a_batch_without_an_answer_is_looked_for_where_it_was_sent_however_often_the_topic_has_moved() -> None:
    world = World({"c1": ["apples"], "c2": []})
    said(produced(world, 9), Unreachable("c1", "connection lost"))
    world.move("apples", "c2")
    world.move("apples", "c1")
    world.now += SETTLED_SECONDS
    again = produced(world, 9)
    said(again, NOBODY)  # the topic's last cluster
    (question,) = again.asked()
    assert (question.cluster, question.own_names) == ("c1", True)
    said(again, raw_metadata("apples", question.version))
    said(again, stored(9))
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    (call,) = produced(world, 10).asked()
    assert call.cluster == "c1"


def test_where_a_batch_was_sent_is_asked_again_if_it_does_not_tell() -> None:
    world = World({"c1": ["apples"], "c2": []})
    said(produced(world, 9), Unreachable("c1", "connection lost"))
    world.move("apples", "c2")
    world.move("apples", "c1")
    world.now += SETTLED_SECONDS
    early = produced(world, 9)
    said(early, NOBODY)  # the topic's last cluster
    said(early, Unreachable("c1", "no answer within 3 s"))
    assert errors(early) == [("apples", 0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    again = produced(world, 9)
    (question,) = again.asked()
    said(again, raw_metadata("apples", question.version))
    said(again, stored(9))
    assert errors(again) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_where_its_topic_has_stayed_a_batch_without_an_answer_goes_out_again_at_once(world: World) -> None:
    told(produced(world, 10), stored(9))
    said(produced(world, 11), Unreachable("c2", "connection lost"))
    told(again := produced(world, 11), stored(9))
    (call,) = again.asked()
    assert call.cluster == "c2"


def test_a_doubt_about_a_producer_that_is_gone_does_not_last_for_ever(world: World) -> None:
    told(produced(world, 10), stored(9))
    book = produced(world, 11)
    said(book, Unreachable("c2", "connection lost"))
    assert world.memory.doubts.any(world.now)
    world.now += DOUBT_SECONDS + 1
    assert not world.memory.doubts.any(world.now)
    assert len(world.memory.doubts) == 0


def test_a_topic_with_another_name_on_the_same_cluster_is_asked_for_by_its_last_one() -> None:
    world = World({"c1": []})
    world.move("apples", "c1", "old-{topic}")
    world.move("apples", "c1", "new-{topic}")
    book = produced(world, 98)
    (question,) = book.asked()
    assert question.own_names
    assert isinstance(question.message, MetadataRequest)
    assert question.message.topics == [MetadataRequestTopic(name="old-apples")]
    said(book, raw_metadata("old-apples", question.version))
    question, *_ = book.asked()
    assert (question.target, question.own_names) == (Broker(1), True)
    assert isinstance(question.message, DescribeProducersRequest)
    assert question.message.topics == [TopicRequest("old-apples", [0])]
    state = PartitionResponse(0, 0, None, [ProducerState(MINE, 0, 99, TIME)])
    told(book, DescribeProducersResponse(topics=[TopicResponse("old-apples", [state])]))
    assert errors(book) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_what_is_remembered_of_all_seams_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_memory, "PRODUCERS_OF_ALL_SEAMS", 10)
    seams = Seams()
    left = Stay("c1", 1, "apples")
    keys = [("apples", partition, "c2", "apples", 1, left) for partition in range(3)]
    for key in keys:
        seams.learn(key, {producer: LastWrite(0, 9, TIME) for producer in range(4)}, 0.0)
    assert [seams.is_known(key) for key in keys] == [False, True, True]
    seams.goes_on(keys[1], 0)
    seams.learn(keys[1], {}, 0.0)  # one is left, that has gone on
    seams.learn(keys[0], {producer: LastWrite(0, 9, TIME) for producer in range(4)}, 0.0)
    assert [seams.is_known(key) for key in keys] == [True, True, True]
