"""Transactions over several clusters when answers are lost, clusters are away, and requests overtake one another."""

from services.gateway.requests.plan import Unreachable
from services.gateway.requests.records import produce
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import EndTxnRequest, InitProducerIdRequest, ProduceRequest
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.transactions.test_spanning_transactions import (
    HOME,
    NOT_FOUND,
    THERE,
    asked,
    begun,
    carried,
    errors,
    given,
    known,
    play_begin,
    play_end,
    play_produce,
    world,
)
from tests.unit.gateway.wire.records import batch


def play_batch(in_world: World, sequence: int) -> Playbook:
    """Records for bananas, on c2."""
    records = PartitionProduceData(0, batch(producer_id=HOME.producer_id, epoch=HOME.epoch, sequence=sequence))
    message = ProduceRequest("tx", -1, 30_000, [TopicProduceData("bananas", partition_data=[records])])
    return Playbook(produce.handle, message, 9, in_world.view())


def test_a_producer_does_not_take_over_a_part_that_it_could_not_have_aborted() -> None:
    made = world()
    book = play_begin(made)
    book.answered(given(HOME))
    book.answered(Unreachable("c2", "down"))
    assert book.answer.error_code == 0
    book = play_produce(made, "bananas")
    book.answered(known(THERE), known(HOME, "Empty"))  # left open by the producer before it, under its first epoch
    book.answered(known(HOME, "Empty"))
    book = play_end(made)
    book.answered(known(HOME), known(THERE))
    assert book.answer.error_code == ErrorCode.TRANSACTION_ABORTABLE
    book = play_end(made, commit=False)
    book.answered(known(HOME), known(THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *THERE, False))]


def test_a_cluster_that_was_never_reached_is_waited_for() -> None:
    """By a gateway that has just started: nobody knows yet whether it can take part."""
    made = world()
    away = made.clusters["c2"]
    away.versions, away.down = {}, "not connected yet"
    away.topics.clear()
    book = play_produce(made, "bananas")
    book.answered(known(HOME, "Empty"))
    book.all_unreachable()
    assert errors(book) == {"bananas": ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_records_behind_do_not_overtake_those_whose_identity_is_made() -> None:
    book = play_produce(begun(there=None), "bananas")
    book.answered(NOT_FOUND, known(HOME, "Empty"))
    assert asked(book) == [("c2", InitProducerIdRequest("tx", 60_000))]
    assert book.waits_for_preliminaries()


def test_records_behind_a_batch_that_was_sent_back_wait_for_it() -> None:
    made = begun(there=None)
    book = play_batch(made, 0)
    book.answered(Unreachable("c2", "down"), known(HOME))
    assert errors(book) == {"bananas": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    book = play_batch(made, 1)
    book.answered(known(THERE), known(HOME))
    book.answered(known(HOME))
    assert errors(book) == {"bananas": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    book = play_batch(made, 0)
    assert carried(book.asked()[0]) == THERE
