"""Share groups (KIP-932): one cluster, one session with the client, one with each leader behind it."""

from __future__ import annotations

import pytest

from mesh.routing import ExactName, ForwardingRule, Subject
from services.gateway.requests.groups import (
    share_acknowledge,
    share_fetch,
    share_opening,
)
from services.gateway.requests.groups.share_opening import end_sessions
from services.gateway.requests.knowledge import BrokerAddress, TopicKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Broker, Call, Stale, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    MetadataResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from services.gateway.wire.messages import share_acknowledge as acknowledge
from services.gateway.wire.messages import share_fetch as fetch
from tests.unit.gateway.requests.playbook import Playbook, World

WAIT_MS = 500


@pytest.fixture
def world() -> World:
    """Apples on c1 with three partitions: 0 and 2 led by broker 1, 1 by broker 2."""
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.memory.group_homes.put("g", "c1", world.now)
    led_by(world, 1, 2, 1)
    world.clusters["c1"].brokers[2] = BrokerAddress(2, "c1-2", 9092, None)
    return world


def led_by(world: World, *leaders: int) -> None:
    world.clusters["c1"].topics["apples"] = TopicKnowledge("apples", real_id("apples"), leaders)


def real_id(topic: str) -> bytes:
    return topic.encode().ljust(16)


def shown_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


ACCEPTED = [1]


def wants(
    epoch: int, *partitions: int, done: tuple[int, ...] = (), forgotten: tuple[int, ...] = (), topic: str = "apples"
) -> ShareFetchRequest:
    """`done`: partitions whose records 0 to 4 are accepted."""
    named = [
        fetch.FetchPartition(index, [fetch.AcknowledgementBatch(0, 4, ACCEPTED)] if index in done else [])
        for index in dict.fromkeys((*partitions, *done))
    ]
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_records=101,
        batch_size=500,
        topics=[fetch.FetchTopic(shown_id(topic), named)] if named else [],
        forgotten_topics_data=[fetch.ForgottenTopic(shown_id(topic), list(forgotten))] if forgotten else [],
    )


def gave(*partitions: int, acknowledged: tuple[int, ...] = (), code: int = 0) -> ShareFetchResponse:
    """A leader's answer: five records of each of these partitions."""
    data = [
        fetch.PartitionData(
            index,
            records=b"records" if index in partitions else b"",
            acknowledge_error_code=code if index in acknowledged else 0,
            current_leader=fetch.LeaderIdAndEpoch(1, 7),
            acquired_records=[fetch.AcquiredRecords(0, 4, 1)] if index in partitions else [],
        )
        for index in dict.fromkeys((*partitions, *acknowledged))
    ]
    topics = [fetch.ShareFetchableTopicResponse(real_id("apples"), data)] if data else []
    return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=topics)


def play(world: World, message: ShareFetchRequest) -> Playbook:
    return Playbook(share_fetch.handle, message, 2, world.view())


def request_of(call: Call) -> ShareFetchRequest:
    assert isinstance(call.message, ShareFetchRequest)
    return call.message


def told(call: Call) -> tuple[object, int, list[int]]:
    """To whom, by which epoch, and which partitions are named."""
    message = request_of(call)
    return call.target, message.share_session_epoch, [p.partition_index for t in message.topics for p in t.partitions]


def partitions_in(answer: ShareFetchResponse) -> dict[int, fetch.PartitionData]:
    assert {topic.topic_id for topic in answer.responses} <= {shown_id("apples")}
    return {p.partition_index: p for topic in answer.responses for p in topic.partitions}


def begun(world: World) -> World:
    """The client has a session with all three partitions, and has been given records of 0 and 1."""
    book = play(world, wants(0, 0, 1, 2))
    book.answered(gave(0), gave(1))
    return world


def test_each_leader_is_told_its_partitions_in_a_session_of_its_own(world: World) -> None:
    book = play(world, wants(0, 0, 1, 2))
    assert [told(call) for call in book.asked()] == [(Broker(1), 0, [0, 2]), (Broker(2), 0, [1])]
    assert [request_of(call).max_records for call in book.asked()] == [51, 50]
    assert {topic.topic_id for call in book.asked() for topic in request_of(call).topics} == {real_id("apples")}
    book.answered(gave(0), gave(1))
    found = partitions_in(book.answer)
    assert {index: len(data.acquired_records) for index, data in found.items()} == {0: 1, 1: 1}
    assert {data.current_leader.leader_id for data in found.values()} == {-1}
    assert book.answer.acquisition_lock_timeout_ms == 30_000


def test_what_is_known_is_not_told_again_and_acknowledgements_go_to_who_gave(world: World) -> None:
    book = play(begun(world), wants(1, done=(1,)))
    assert [told(call) for call in book.asked()] == [(Broker(1), 1, []), (Broker(2), 1, [1])]
    [_, second] = book.asked()
    [batch] = request_of(second).topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 4, ACCEPTED)
    book.answered(gave(2), gave(acknowledged=(1,)))
    assert [told(call)[1] for call in play(world, wants(2)).asked()] == [2, 2]


def test_an_idle_leader_does_not_hold_back_what_a_busy_one_has_given(world: World) -> None:
    book = play(begun(world), wants(1, done=(0,)))
    assert {request_of(call).max_wait_ms for call in book.asked()} == {share_fetch.ROUND_MS}
    book.answered(gave(acknowledged=(0,), code=ErrorCode.INVALID_RECORD_STATE), gave())
    # nothing yet: another round, in which nothing is acknowledged twice
    assert [told(call) for call in book.asked()] == [(Broker(1), 2, []), (Broker(2), 2, [])]
    book.answered(gave(0), gave())
    [found] = partitions_in(book.answer).values()
    assert (found.acknowledge_error_code, len(found.acquired_records)) == (ErrorCode.INVALID_RECORD_STATE, 1)


def test_the_rounds_end_when_the_client_has_waited_long_enough(world: World) -> None:
    book = play(begun(world), wants(1))
    for _ in range(WAIT_MS // share_fetch.ROUND_MS):
        book.answered(gave(), gave())
    assert book.answer.responses == []


def test_a_single_leader_waits_as_long_as_the_client_says(world: World) -> None:
    book = play(world, wants(0, 0, 2))
    [call] = book.asked()
    assert (request_of(call).max_wait_ms, request_of(call).max_records) == (WAIT_MS, 101)
    book.answered(gave())
    assert book.answer.error_code == ErrorCode.NONE


def test_forgotten_partitions_are_told_to_their_leader_alone(world: World) -> None:
    book = play(begun(world), wants(1, forgotten=(1, 2)))
    first, second = book.asked()
    assert [topic.partitions for topic in request_of(first).forgotten_topics_data] == [[2]]
    assert [topic.partitions for topic in request_of(second).forgotten_topics_data] == [[1]]
    book.answered(gave(0), gave())
    assert [told(call)[0] for call in play(world, wants(2)).asked()] == [Broker(1)]


def test_a_partition_whose_leader_has_changed_is_taken_along_after_its_acknowledgement(world: World) -> None:
    led_by(begun(world), 1, 1, 1)
    book = play(world, wants(1, done=(1,)))
    first, second = book.asked()
    assert told(first) == (Broker(1), 1, [1])
    assert told(second) == (Broker(2), 1, [1])
    assert request_of(first).topics[0].partitions[0].acknowledgement_batches == []
    assert len(request_of(second).topics[0].partitions[0].acknowledgement_batches) == 1
    book.answered(gave(1), gave(acknowledged=(1,)))
    assert [topic.partitions for topic in request_of(play(world, wants(2)).asked()[1]).forgotten_topics_data] == [[1]]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (-1, ErrorCode.NONE), (1, ErrorCode.NONE)],
)
def test_epochs_are_checked_as_a_broker_does(world: World, epoch: int, code: ErrorCode) -> None:
    book = play(begun(world), wants(epoch))
    if code is ErrorCode.NONE:
        book.answered(gave(0), gave(1))
    assert book.answer.error_code == code


def test_a_session_that_nobody_began_is_not_found(world: World) -> None:
    assert play(world, wants(4)).answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_goes_on_with_its_session_on_another_connection(world: World) -> None:
    """franz-go fetches on one connection and acknowledges on another one."""
    begun(world)
    world.session = Session("127.0.0.1:6", "test")
    book = settle(world, done_with(1, 0))
    book.answered(acknowledged(0))
    assert codes_in(book.answer) == {0: 0}


def test_a_session_ends_with_the_connection_on_which_it_began(world: World) -> None:
    first = begun(world).session
    world.session = Session("127.0.0.1:6", "test")
    end_sessions(world.session, world.memory.share_sessions)
    settle(world, done_with(1, 0)).answered(acknowledged(0))
    end_sessions(first, world.memory.share_sessions)
    assert settle(world, done_with(2)).answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(world.memory.share_sessions) == 0


def test_the_end_of_an_earlier_connection_does_not_end_the_session_that_its_member_began_anew(world: World) -> None:
    first = begun(world).session
    world.session = Session("127.0.0.1:6", "test")
    begun(world)
    end_sessions(first, world.memory.share_sessions)
    assert [told(call)[1] for call in play(world, wants(1)).asked()] == [1, 1]


def test_an_acknowledgement_waits_for_the_fetch_before_it_on_another_connection(world: World) -> None:
    waiting = play(begun(world), wants(1))
    world.session = Session("127.0.0.1:6", "test")
    book = settle(world, done_with(2, 0))
    assert book.gathers().wait_s == share_opening.BUSY_PAUSE_S
    waiting.answered(gave(2), gave())
    book.answered()
    assert epochs_in(book) == [(Broker(1), 2)]


def test_a_request_that_is_broken_off_makes_the_brokers_begin_new_sessions(world: World) -> None:
    """Nobody knows whether a broker has counted the request."""
    play(begun(world), wants(1)).close()
    assert [told(call)[1] for call in play(world, wants(2)).asked()] == [0, 0]


def test_no_session_begins_beyond_the_bound_and_the_client_is_told_so(world: World) -> None:
    world.memory.share_sessions.capacity = 0
    answer = play(world, wants(0, 0)).answer
    assert answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_an_acknowledgement_begins_no_session(world: World) -> None:
    assert settle(world, done_with(0, 0)).answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_the_end_of_a_session_is_told_to_all_leaders_with_what_is_left_to_say(world: World) -> None:
    book = play(begun(world), wants(-1, done=(0,)))
    assert [told(call) for call in book.asked()] == [(Broker(1), -1, [0]), (Broker(2), -1, [])]
    book.answered(gave(acknowledged=(0,)), gave())
    assert partitions_in(book.answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert play(world, wants(1)).answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_leader_that_is_gone_gives_its_records_to_others(world: World) -> None:
    book = play(begun(world), wants(1, done=(1,)))
    book.answered(gave(0), Unreachable("c1", "connection lost"))
    found = partitions_in(book.answer)
    assert (found[0].error_code, len(found[0].acquired_records)) == (ErrorCode.NONE, 1)
    assert found[1].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert Stale("c1", ("apples",)) in book.noted
    # and is asked anew, from the beginning
    assert [told(call) for call in play(world, wants(2)).asked()] == [(Broker(1), 2, []), (Broker(2), 0, [1])]


def test_a_leader_that_has_forgotten_the_session_begins_a_new_one_unseen_by_the_client(world: World) -> None:
    book = play(begun(world), wants(1))
    forgot = ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)
    book.answered(gave(), forgot)
    assert [told(call) for call in book.asked()] == [(Broker(1), 2, []), (Broker(2), 0, [1])]


def test_a_topic_that_was_deleted_and_made_again_is_told_to_its_leaders_anew(world: World) -> None:
    """Clients see the id that it had before, so nobody else will."""
    begun(world)
    again = TopicKnowledge("apples", b"apples made anew", world.clusters["c1"].topics["apples"].leaders)
    world.clusters["c1"].topics["apples"] = again
    book = play(world, wants(1))
    assert [told(call) for call in book.asked()] == [(Broker(1), 0, [0, 2]), (Broker(2), 0, [1])]
    assert {topic.topic_id for call in book.asked() for topic in request_of(call).topics} == {again.topic_id}


def test_what_all_leaders_refuse_is_refused(world: World) -> None:
    book = play(begun(world), wants(1))
    no = ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no")
    book.answered(no, no)
    assert (book.answer.error_code, book.answer.error_message) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")


def test_while_no_leader_answers_the_client_does_not_ask_without_pause(world: World) -> None:
    book = play(begun(world), wants(1))
    book.all_unreachable()
    assert book.gathers().wait_s == share_fetch.ROUND_MS / 1000
    book.answered()
    assert book.answer.error_code == ErrorCode.NONE


def test_a_topic_that_has_left_the_cluster_of_the_groups_rule_is_an_error_that_applications_see(world: World) -> None:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), "c1"))
    world.move("apples", "c2")
    book = play(world, wants(0, 0))
    assert book.gathers().wait_s == WAIT_MS / 1000
    book.answered()
    [data] = partitions_in(book.answer).values()
    assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "lives on cluster c2" in str(data.error_message)


def test_an_id_that_nobody_knows_is_said_to_be_unknown(world: World) -> None:
    message = wants(0, 0)
    message.topics.append(fetch.FetchTopic(b"nobody knows it!", [fetch.FetchPartition(3)]))
    book = play(world, message)
    book.answered(MetadataResponse(), MetadataResponse())
    book.answered(gave(0))
    found = {topic.topic_id: [p.error_code for p in topic.partitions] for topic in book.answer.responses}
    assert found == {shown_id("apples"): [0], b"nobody knows it!": [ErrorCode.UNKNOWN_TOPIC_ID]}


def done_with(epoch: int, *partitions: int) -> ShareAcknowledgeRequest:
    named = [
        acknowledge.AcknowledgePartition(index, [acknowledge.AcknowledgementBatch(0, 4, ACCEPTED)])
        for index in partitions
    ]
    topics = [acknowledge.AcknowledgeTopic(shown_id("apples"), named)] if named else []
    return ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=epoch, topics=topics)


def acknowledged(*partitions: int) -> ShareAcknowledgeResponse:
    data = [acknowledge.PartitionData(index) for index in partitions]
    return ShareAcknowledgeResponse(responses=[acknowledge.ShareAcknowledgeTopicResponse(real_id("apples"), data)])


def settle(world: World, message: ShareAcknowledgeRequest) -> Playbook:
    return Playbook(share_acknowledge.handle, message, 2, world.view())


def epochs_in(book: Playbook) -> list[tuple[object, int]]:
    calls = [(call.target, call.message) for call in book.asked()]
    return [(to, message.share_session_epoch) for to, message in calls if isinstance(message, ShareAcknowledgeRequest)]


def codes_in(answer: ShareAcknowledgeResponse) -> dict[int, int]:
    assert {topic.topic_id for topic in answer.responses} == {shown_id("apples")}
    return {p.partition_index: p.error_code for topic in answer.responses for p in topic.partitions}


def test_acknowledgements_go_to_who_gave_and_take_the_next_epoch(world: World) -> None:
    book = settle(begun(world), done_with(1, 0))
    assert epochs_in(book) == [(Broker(1), 1)]
    book.answered(acknowledged(0))
    assert codes_in(book.answer) == {0: 0}
    assert [told(call)[1] for call in play(world, wants(2)).asked()] == [2, 1]


def test_records_of_a_leader_that_is_gone_cannot_be_acknowledged(world: World) -> None:
    book = settle(begun(world), done_with(1, 0, 1))
    book.answered(acknowledged(0), Unreachable("c1", "connection lost"))
    assert codes_in(book.answer) == {0: 0, 1: ErrorCode.INVALID_RECORD_STATE}
    assert codes_in(settle(world, done_with(2, 1)).answer) == {1: ErrorCode.INVALID_RECORD_STATE}


def test_a_member_that_leaves_ends_its_session_with_every_leader(world: World) -> None:
    book = settle(begun(world), done_with(-1, 0))
    assert epochs_in(book) == [(Broker(1), -1), (Broker(2), -1)]
    book.answered(acknowledged(0), ShareAcknowledgeResponse())
    assert settle(world, done_with(1)).answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
