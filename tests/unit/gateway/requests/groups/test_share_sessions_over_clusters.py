"""Share sessions (KIP-932) whose partitions are on several clusters: the client sees one node, or one for each."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from services.gateway.requests.groups import share_acknowledge, share_fetch
from services.gateway.requests.groups.share_opening import end_sessions
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Broker, Call
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from services.gateway.wire.messages import share_acknowledge as acknowledge
from services.gateway.wire.messages import share_fetch as fetch
from tests.unit.gateway.requests.playbook import Playbook, World

LOCK_S = 30.0
ACCEPTED = [1]
C1, C2 = ("c1", Broker(1)), ("c2", Broker(2))


@pytest.fixture
def world() -> World:
    """Apples and pears on c1, bananas on c2, one partition each; the client sees one node."""
    return World({"c1": ["apples", "pears"], "c2": ["bananas"]})


@pytest.fixture
def by_node(world: World) -> World:
    """The client sees a node for each cluster: 101 and 102."""
    world.by_node_id = True
    return world


def shown_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


def real_id(topic: str) -> bytes:
    return topic.encode().ljust(16)


def on_connection(world: World, number: int, node: int | None = None) -> World:
    """The next requests come on this connection."""
    world.session = Session(f"127.0.0.1:{number}", "test", asked_node=node)
    return world


def play(world: World, epoch: int, *topics: str, done: tuple[str, ...] = (), forgotten: str = "") -> Playbook:
    batch = fetch.AcknowledgementBatch(0, 4, ACCEPTED)
    message = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=500,
        max_records=101,
        topics=[
            fetch.FetchTopic(shown_id(topic), [fetch.FetchPartition(0, [batch] if topic in done else [])])
            for topic in dict.fromkeys((*topics, *done))
        ],
        forgotten_topics_data=[fetch.ForgottenTopic(shown_id(forgotten), [0])] if forgotten else [],
    )
    return Playbook(share_fetch.handle, message, 2, world.view())


def settle(world: World, epoch: int, *topics: str) -> Playbook:
    named = [acknowledge.AcknowledgePartition(0, [acknowledge.AcknowledgementBatch(0, 4, ACCEPTED)])]
    message = ShareAcknowledgeRequest("g", "m", epoch, topics=[])
    message.topics = [acknowledge.AcknowledgeTopic(shown_id(topic), named) for topic in topics]
    return Playbook(share_acknowledge.handle, message, 2, world.view())


def gave(*topics: str, lock_s: float = LOCK_S) -> ShareFetchResponse:
    data = [fetch.PartitionData(0, records=b"records", acquired_records=[fetch.AcquiredRecords(0, 4, 1)])]
    responses = [fetch.ShareFetchableTopicResponse(real_id(topic), data) for topic in topics]
    return ShareFetchResponse(acquisition_lock_timeout_ms=int(lock_s * 1000), responses=responses)


def settled(*topics: str) -> ShareAcknowledgeResponse:
    data = [acknowledge.PartitionData(0)]
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=20_000,
        responses=[acknowledge.ShareAcknowledgeTopicResponse(real_id(topic), data) for topic in topics],
    )


def told(call: Call) -> tuple[tuple[str, object], int, list[bytes]]:
    """To whom, by which epoch, and which topics are named."""
    assert isinstance(call.message, ShareFetchRequest | ShareAcknowledgeRequest)
    named = [topic.topic_id for topic in call.message.topics]
    return (call.cluster, call.target), call.message.share_session_epoch, named


def asked(book: Playbook) -> list[tuple[tuple[str, object], int, list[str]]]:
    names = {real_id(topic): topic for topic in ("apples", "pears", "bananas")}
    return [(to, epoch, [names[each] for each in ids]) for to, epoch, ids in map(told, book.asked())]


def codes_in(answer: ShareFetchResponse | ShareAcknowledgeResponse) -> Mapping[str, int]:
    names = {shown_id(topic): topic for topic in ("apples", "pears", "bananas")}
    return {names[topic.topic_id]: p.error_code for topic in answer.responses for p in topic.partitions}


def test_one_session_with_one_node_reads_and_accepts_on_both_clusters(world: World) -> None:
    book = play(world, 0, "apples", "bananas")
    assert asked(book) == [(C1, 0, ["apples"]), (C2, 0, ["bananas"])]
    assert [call.message.max_records for call in book.asked()] == [51, 50]  # type: ignore[union-attr]
    book.answered(gave("apples"), gave("bananas", lock_s=15))
    assert codes_in(book.answer) == {"apples": 0, "bananas": 0}
    assert book.answer.acquisition_lock_timeout_ms == 15_000

    book = settle(world, 1, "apples", "bananas")
    assert asked(book) == [(C1, 1, ["apples"]), (C2, 1, ["bananas"])]
    book.answered(settled("apples"), settled("bananas"))
    assert codes_in(book.answer) == {"apples": 0, "bananas": 0}
    assert book.answer.acquisition_lock_timeout_ms == 20_000


def with_two_sessions(world: World) -> tuple[Session, Session]:
    """The member has a session with node 101 and another one with node 102, in which it is one request further."""
    first = on_connection(world, 1).session
    play(world, 0, "apples").answered(gave("apples"))
    second = on_connection(world, 2).session
    play(world, 0, "bananas").answered(gave("bananas"))
    play(world, 1).answered(gave("bananas"))
    return first, second


def test_a_member_has_a_session_with_each_node_that_it_sees(by_node: World) -> None:
    first, second = with_two_sessions(by_node)
    by_node.session = first
    assert asked(play(by_node, 1)) == [(C1, 1, [])]
    by_node.session = second
    assert asked(play(by_node, 2)) == [(C2, 2, [])]


def test_on_a_new_connection_the_partitions_or_the_epoch_show_which_session_is_meant(by_node: World) -> None:
    with_two_sessions(by_node)
    assert asked(play(on_connection(by_node, 3), 2)) == [(C2, 2, [])]
    assert asked(settle(on_connection(by_node, 4), 1, "apples")) == [(C1, 1, ["apples"])]


def test_a_connection_that_has_shown_its_node_needs_no_partitions(by_node: World) -> None:
    with_two_sessions(by_node)
    settle(on_connection(by_node, 3), 1, "apples").answered(settled("apples"))
    assert asked(play(by_node, 2)) == [(C1, 2, [])]


def test_a_request_that_could_mean_either_session_begins_anew(by_node: World) -> None:
    first, _ = with_two_sessions(by_node)
    by_node.session = first
    play(by_node, 1).answered(gave("apples"))
    answer = play(on_connection(by_node, 3), 2).answer
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_client_that_names_its_node_means_the_session_there(by_node: World) -> None:
    with_two_sessions(by_node)
    assert asked(play(on_connection(by_node, 3, node=102), 2)) == [(C2, 2, [])]
    end_sessions(by_node.session, by_node.memory.share_sessions)
    by_node.memory.share_sessions.end(("g", "m"), by_node.memory.share_sessions.of(("g", "m"))[101])
    answer = play(on_connection(by_node, 4, node=101), 2).answer
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_end_of_one_nodes_connection_leaves_the_session_with_the_other_node(by_node: World) -> None:
    first, second = with_two_sessions(by_node)
    end_sessions(first, by_node.memory.share_sessions)
    by_node.session = second
    assert asked(play(by_node, 2)) == [(C2, 2, [])]
    assert len(by_node.memory.share_sessions) == 1


def test_a_session_that_begins_again_with_one_node_leaves_the_session_with_the_other(by_node: World) -> None:
    first, second = with_two_sessions(by_node)
    by_node.session = first
    assert asked(play(by_node, 0, "apples")) == [(C1, 0, ["apples"])]
    by_node.session = second
    assert asked(play(by_node, 2)) == [(C2, 2, [])]
    assert len(by_node.memory.share_sessions) == 2


def test_a_partition_that_has_moved_to_another_nodes_cluster_sends_the_client_to_that_node(by_node: World) -> None:
    play(by_node, 0, "apples", "pears").answered(gave("apples"))
    by_node.move("pears", "c2")
    book = play(by_node, 1)
    assert asked(book) == [(C1, 1, [])]
    book.answered(gave("apples"))
    assert codes_in(book.answer) == {"apples": 0, "pears": ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_session_that_began_with_moved_partitions_alone_is_with_the_right_node_once_they_are_forgotten(
    by_node: World,
) -> None:
    """The client does not name its node, which is 101, and has not heard that both bananas and pears left it."""
    by_node.move("pears", "c2")
    play(by_node, 0, "pears", "bananas", "apples").answered(gave("pears"))
    book = play(by_node, 1, forgotten="pears")
    assert codes_in_unasked(book) == {"apples": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    play(by_node, 2, forgotten="bananas").answered(gave("apples"), gave())
    assert list(by_node.memory.share_sessions.of(("g", "m"))) == [101]


def codes_in_unasked(book: Playbook) -> Mapping[str, int]:
    book.answered(gave())
    while book.pending is not None:
        book.answered(*(gave() for _ in book.pending))
    return codes_in(book.answer)


def test_nothing_is_read_at_the_new_cluster_before_the_old_ones_locks_have_run_out(world: World) -> None:
    """Offsets 0 to 4 are other records there: an acknowledgement that comes late must not accept them."""
    play(world, 0, "apples").answered(gave("apples"))
    world.move("apples", "c2")
    book = play(world, 1)
    assert asked(book) == [(C1, 1, [])]
    [call] = book.asked()
    assert isinstance(call.message, ShareFetchRequest)
    assert [topic.topic_id for topic in call.message.forgotten_topics_data] == [real_id("apples")]
    book.answered(gave())
    while book.pending is not None:
        book.answered()
    assert book.answer.responses == []

    book = settle(world, 2, "apples")
    assert asked(book) == [(C1, 2, ["apples"])]
    book.answered(settled("apples"))
    assert codes_in(book.answer) == {"apples": 0}

    world.now += LOCK_S
    book = play(world, 3)
    assert asked(book) == [(C2, 0, ["apples"])]


def test_the_locks_of_a_session_with_another_node_count_too(by_node: World) -> None:
    first = on_connection(by_node, 1).session
    play(by_node, 0, "apples", "pears").answered(gave("apples"))
    by_node.move("apples", "c2")
    book = play(on_connection(by_node, 2), 0, "apples")
    assert book.gathers().wait_s == 0.5
    by_node.session = first
    assert asked(settle(by_node, 1, "apples")) == [(C1, 1, ["apples"])]


def test_a_cluster_without_share_groups_is_named_in_the_error_of_its_partitions(world: World) -> None:
    del world.clusters["c2"].versions[78]
    book = play(world, 0, "apples", "bananas")
    assert asked(book) == [(C1, 0, ["apples"])]
    book.answered(gave("apples"))
    assert codes_in(book.answer) == {"apples": 0, "bananas": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    [text] = [p.error_message for t in book.answer.responses for p in t.partitions if p.error_code]
    assert "topic bananas lives on cluster c2, which has no share groups" in text
