"""The producers of a topic at its cut come with the switch: the gateway asks no cluster, and still finds repeats."""

import pytest

from mesh.rpc import topic_moves
from services.gateway.requests.plan import RawResponse, Verbatim
from services.gateway.requests.records.handover import learn
from services.gateway.wire.batches import visit_producer_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_producers import DescribeProducersRequest
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.requests.records.test_produce import errors, raw
from tests.unit.gateway.requests.records.test_seams import MINE, TIME, produced, said, stored, told, world

__all__ = ["world"]


def handed(sequence: int | None = 99, *, source: str = "c1", producer_id: int = MINE) -> topic_moves.TopicMoveProducers:
    """What control tells of partition 0; without a sequence, that nobody has written there."""
    message = topic_moves.TopicMoveProducers(topic="apples", source_cluster=source, source_topic="apples")
    partition = message.partitions.add(partition=0)
    if sequence is not None:
        partition.producers.add(producer_id=producer_id, epoch=0, sequence=sequence, timestamp_ms=TIME)
    return message


def switched(world: World, message: topic_moves.TopicMoveProducers) -> None:
    learn(message, world.table, world.memory.seams, world.now)


def test_the_first_records_go_to_the_new_cluster_at_once(world: World) -> None:
    switched(world, handed(99))
    book = produced(world, 100)
    (call,) = book.asked()
    assert (call.cluster, type(call.message)) == ("c2", Verbatim)
    said(book, raw(("apples", 0, 0)))
    assert isinstance(book.answer, RawResponse)


def test_a_repeat_is_not_sent(world: World) -> None:
    switched(world, handed(99))
    assert errors(produced(world, 99)) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_a_batch_that_skips_one_is_refused_and_then_the_clusters_are_asked(world: World) -> None:
    switched(world, handed(99))
    assert errors(produced(world, 101)) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    again = produced(world, 101)
    told(again, stored(99), MINE)  # the batch between has come through another gateway
    (call,) = again.asked()
    assert call.cluster == "c2"


def test_without_producers_the_topic_has_no_seam(world: World) -> None:
    switched(world, handed(None))
    (call,) = produced(world, 5).asked()
    assert call.cluster == "c2"


def test_on_a_later_visit_the_producers_have_the_ids_of_their_last_cluster(world: World) -> None:
    world.move("apples", "c1")
    world.move("apples", "c2")
    switched(world, handed(99, producer_id=visit_producer_id(MINE, 2)))
    assert errors(produced(world, 99)) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


@pytest.mark.parametrize(
    "message",
    [topic_moves.TopicMoveProducers(), handed(source="c3"), topic_moves.TopicMoveProducers(topic="apples")],
    ids=["a switch without producers", "of another cluster", "without this partition"],
)
def test_else_the_last_cluster_is_asked(world: World, message: topic_moves.TopicMoveProducers) -> None:
    switched(world, message)
    question, *_ = produced(world, 100).asked()
    assert (question.cluster, type(question.message)) == ("c1", DescribeProducersRequest)


def test_an_answer_that_is_known_already_stands(world: World) -> None:
    told(produced(world, 99), stored(99))
    switched(world, handed(50))
    assert errors(produced(world, 99)) == [("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]


def test_a_dead_cluster_is_not_asked_and_its_producers_do_not_wait(world: World) -> None:
    switched(world, topic_moves.TopicMoveProducers(source_cluster="c1"))
    book = produced(world, 100)
    (call,) = book.asked()
    assert (call.cluster, type(call.message)) == ("c2", Verbatim)
