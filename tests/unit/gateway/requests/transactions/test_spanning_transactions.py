"""Transactions over several clusters, and ids that move: who is asked, in which order, under which identity."""

from services.gateway.requests.knowledge import TopicKnowledge
from services.gateway.requests.memory import Memory
from services.gateway.requests.plan import Call, RawResponse, Unreachable, Verbatim
from services.gateway.requests.records import produce
from services.gateway.requests.transactions import add_partitions, end, init_producer_id
from services.gateway.requests.transactions.state import Identity, Spanning
from services.gateway.requests.transactions.survey import STATE_TOPIC
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import crc_is_right, read_batch_header
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_request_header, parse_response_header
from services.gateway.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from services.gateway.wire.messages.describe_transactions import TransactionState
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.transactions.test_transactions import with_transaction_rule
from tests.unit.gateway.wire.records import batch

HOME, THERE = Identity(7, 3), Identity(40, 0)
"""What c1, the home of "tx", and c2 call its producer."""
NEXT_AT_HOME, NEXT_THERE = Identity(7, 4), Identity(40, 1)
NONE = Identity(-1, -1)
NOT_FOUND = DescribeTransactionsResponse(0, [TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "tx")])


def world(*, spans: bool = True, home: str = "c1", memory: Memory | None = None) -> World:
    """apples on c1, bananas on c2. "tx" may write to both, unless said otherwise."""
    made = World({"c1": ["apples"], "c2": ["bananas"]}, memory=memory or Memory())
    for knowledge in made.clusters.values():
        broker = next(iter(knowledge.brokers))
        knowledge.topics[STATE_TOPIC] = TopicKnowledge(STATE_TOPIC, bytes(16), (broker,))
    return with_transaction_rule(made, home, spans=spans)


def begun(*, there: Identity | None = THERE) -> World:
    """This gateway was there when the producer began."""
    made = world()
    beginning = {"c1": HOME} if there is None else {"c1": HOME, "c2": there}
    made.memory.spanning.put("tx", Spanning("c1", HOME, beginning), made.now)
    return made


def known(identity: Identity, state: str = "Ongoing") -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(0, [TransactionState(0, "tx", state, 60_000, -1, *identity)])


def given(identity: Identity) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def ended(identity: Identity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def asked(book: Playbook) -> list[tuple[str, Struct]]:
    """Cluster and message of each call that the plan waits for."""
    calls = book.asked()
    return [(call.cluster, call.message) for call in calls if isinstance(call.message, Struct)]


def asks_about_it(book: Playbook) -> list[str]:
    """The clusters that are asked what they know of the id."""
    return [cluster for cluster, message in asked(book) if message == DescribeTransactionsRequest(["tx"])]


def play_end(in_world: World, identity: Identity = HOME, *, commit: bool = True, version: int = 5) -> Playbook:
    return Playbook(end.handle, EndTxnRequest("tx", *identity, commit), version, in_world.view())


def play_begin(in_world: World, identity: Identity = NONE) -> Playbook:
    return Playbook(init_producer_id.handle, InitProducerIdRequest("tx", 60_000, *identity), 4, in_world.view())


def play_produce(in_world: World, topic: str, identity: Identity = HOME) -> Playbook:
    records = PartitionProduceData(0, batch(producer_id=identity.producer_id, epoch=identity.epoch, sequence=0))
    message = ProduceRequest("tx", -1, 30_000, [TopicProduceData(topic, partition_data=[records])])
    return Playbook(produce.handle, message, 9, in_world.view())


def carried(call: Call) -> Identity:
    """Under which identity the records of a call go out; their CRC is right."""
    assert isinstance(call.message, Verbatim)
    frame = call.message.frame
    body = parse_request_header(frame, SIZE_BYTES, len(frame)).body_offset
    records = bytes(decode(ProduceRequest, 9, frame, body).topic_data[0].partition_data[0].records or b"")
    header = read_batch_header(records, 0, len(records))
    assert crc_is_right(records, header)
    return Identity(header.producer_id, header.producer_epoch)


def test_a_producer_that_begins_is_fenced_wherever_it_has_been() -> None:
    made = world()
    book = play_begin(made)
    assert asked(book) == [("c1", InitProducerIdRequest("tx", 60_000))], "home first"
    book.answered(given(HOME))
    assert asks_about_it(book) == ["c2"]
    book.answered(known(Identity(40, 5), "Ongoing"))
    assert asked(book) == [("c2", InitProducerIdRequest("tx", 60_000))]
    book.answered(given(Identity(40, 6)))
    assert (book.answer.producer_id, book.answer.producer_epoch) == HOME
    remembered = made.memory.spanning.get("tx", made.now)
    assert remembered is not None and remembered.beginning == {"c1": HOME, "c2": Identity(40, 6)}


def test_a_mesh_of_one_cluster_needs_no_second_one_to_span() -> None:
    alone = with_transaction_rule(World({"c1": ["apples"]}), "c1", spans=True)
    alone.clusters["c1"].topics[STATE_TOPIC] = TopicKnowledge(STATE_TOPIC, bytes(16), (1,))
    book = play_begin(alone)
    book.answered(given(HOME))
    assert book.answer == given(HOME)
    book = play_end(alone)
    book.answered(known(HOME))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, True))]


def test_it_begins_when_what_it_left_open_elsewhere_has_ended() -> None:
    book = play_begin(world())
    book.answered(given(HOME))
    book.answered(known(THERE))
    book.answered(InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS))
    assert book.answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_what_rests_elsewhere_is_let_be_where_transactions_do_not_span() -> None:
    book = play_begin(world(spans=False))
    book.answered(given(HOME))
    book.answered(known(THERE, "CompleteCommit"))
    assert (book.answer.producer_id, book.answer.producer_epoch) == HOME


def test_a_cluster_that_is_away_does_not_keep_a_producer_from_its_home() -> None:
    book = play_begin(world())
    book.answered(given(HOME))
    book.all_unreachable()
    assert (book.answer.producer_id, book.answer.producer_epoch) == HOME


def test_a_cluster_is_told_of_the_producer_at_its_first_record_there() -> None:
    book = play_produce(begun(there=None), "bananas")
    assert asks_about_it(book) == ["c2", "c1"] and book.waits_for_preliminaries()
    book.answered(NOT_FOUND, known(HOME, "Empty"))
    assert asked(book) == [("c2", InitProducerIdRequest("tx", 60_000))]
    book.answered(given(THERE))
    assert asks_about_it(book) == ["c1"], "is it still the one at home?"
    book.answered(known(HOME, "Empty"))
    (call,) = book.asked()
    assert (call.cluster, carried(call)) == ("c2", THERE)


def test_its_identity_there_is_found_by_any_gateway() -> None:
    made = world()
    book = play_produce(made, "bananas")
    book.answered(known(THERE), known(HOME, "Empty"))
    book.answered(known(HOME, "Empty"))
    assert carried(book.asked()[0]) == THERE
    again = play_produce(made, "bananas")
    assert carried(again.asked()[0]) == THERE, "and remembered"


def test_records_for_home_keep_the_identity_that_the_client_has() -> None:
    assert carried(play_produce(begun(), "apples").asked()[0]) == HOME


def test_a_producer_that_was_replaced_writes_nothing_elsewhere() -> None:
    book = play_produce(world(), "bananas")
    book.answered(NOT_FOUND, known(NEXT_AT_HOME, "Empty"))
    assert errors(book) == {"bananas": ErrorCode.INVALID_PRODUCER_EPOCH}


def test_nor_does_one_that_is_replaced_just_now() -> None:
    book = play_produce(world(), "bananas")
    book.answered(known(NEXT_THERE), known(HOME))
    book.answered(known(NEXT_AT_HOME))
    assert errors(book) == {"bananas": ErrorCode.INVALID_PRODUCER_EPOCH}


def test_records_wait_for_a_cluster_that_is_away() -> None:
    book = play_produce(world(), "bananas")
    book.answered(Unreachable("c2", "down"), known(HOME))
    assert errors(book) == {"bananas": ErrorCode.NOT_LEADER_OR_FOLLOWER}


def errors(book: Playbook) -> dict[str, int]:
    return {topic.name: topic.partition_responses[0].error_code for topic in book.answer.responses}


def test_partitions_are_added_where_they_live() -> None:
    topics = [AddPartitionsToTxnTopic("bananas", [0]), AddPartitionsToTxnTopic("apples", [0])]
    book = Playbook(add_partitions.handle, AddPartitionsToTxnRequest([], "tx", *HOME, topics), 3, begun().view())
    assert asked(book) == [("c2", AddPartitionsToTxnRequest([], "tx", *THERE, topics[:1]))]
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[_result("bananas")]))
    assert asked(book) == [("c1", AddPartitionsToTxnRequest([], "tx", *HOME, topics[1:]))]
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[_result("apples")]))
    assert book.answer.results_by_topic_v3_and_below == [_result("bananas"), _result("apples")]


def _result(topic: str) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(topic, [AddPartitionsToTxnPartitionResult(0, 0)])


def test_a_commit_goes_to_the_clusters_with_a_part_and_home_is_the_last() -> None:
    made = begun()
    book = play_end(made)
    assert asks_about_it(book) == ["c1", "c2"]
    book.answered(known(HOME), known(THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *THERE, True))]
    book.answered(ended(NEXT_THERE))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, True))]
    book.answered(ended(NEXT_AT_HOME))
    assert book.answer == ended(NEXT_AT_HOME)
    assert carried(play_produce(made, "bananas", NEXT_AT_HOME).asked()[0]) == NEXT_THERE


def test_home_without_a_part_gets_its_next_epoch_all_the_same() -> None:
    book = play_end(begun())
    book.answered(known(HOME, "CompleteCommit"), known(THERE))
    book.answered(ended(NEXT_THERE))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, False))], "an abort of nothing"
    book.answered(ended(NEXT_AT_HOME))
    assert book.answer == ended(NEXT_AT_HOME)


def test_with_the_first_protocol_only_parts_are_ended() -> None:
    made = begun()
    book = play_end(made, version=3)
    book.answered(known(HOME, "CompleteCommit"), known(THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *THERE, True))]
    book.answered(EndTxnResponse())
    assert book.answer.error_code == 0
    again = play_end(made, version=3)
    assert asks_about_it(again) == ["c1", "c2"], "the next transaction has the same identity"


def test_a_client_that_missed_the_answer_gets_it_again() -> None:
    made = begun()
    book = play_end(made)
    book.answered(known(HOME), known(THERE))
    book.answered(ended(NEXT_THERE))
    book.answered(ended(NEXT_AT_HOME))
    assert play_end(made).answer == ended(NEXT_AT_HOME)


def test_the_coordinator_at_home_tells_a_repeated_end_from_a_replaced_producer() -> None:
    made = world()
    book = play_end(made)
    book.answered(known(NEXT_AT_HOME, "CompleteCommit"), known(NEXT_THERE, "CompleteCommit"))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, True))]
    book.answered(ended(NEXT_AT_HOME))
    assert book.answer == ended(NEXT_AT_HOME)
    book = play_end(made, NEXT_AT_HOME)
    book.answered(known(NEXT_AT_HOME), known(NEXT_THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *NEXT_THERE, True))], "this was a beginning"


def test_with_the_first_protocol_states_tell_whether_all_was_committed() -> None:
    """To a gateway that was not there at the beginning; a commit that is perhaps one must not become an abort."""
    for at_home, there, error in (
        ("CompleteCommit", "PrepareCommit", ErrorCode.NONE),
        ("CompleteCommit", "Empty", ErrorCode.NONE),
        ("CompleteCommit", "CompleteAbort", ErrorCode.INVALID_TXN_STATE),
        ("Ongoing", "CompleteCommit", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        book = play_end(world(), version=3)
        book.answered(known(HOME, at_home), known(THERE, there))
        assert book.answer.error_code == error, (at_home, there)


def test_an_end_that_was_interrupted_goes_on() -> None:
    made = begun()
    book = play_end(made)
    book.answered(known(HOME), known(THERE))
    book.answered(ended(NEXT_THERE))
    book.answered(Unreachable("c1", "connection lost"))
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    book = play_end(made)
    book.answered(known(HOME), known(NEXT_THERE, "CompleteCommit"))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, True))]


def test_an_end_whose_answer_was_lost_elsewhere_goes_on() -> None:
    for beginning, then in ((THERE, NEXT_THERE), (None, NEXT_THERE)):
        book = play_end(begun(there=beginning))
        book.answered(known(HOME), known(then, "CompleteCommit"))
        assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, True))]


def test_a_part_that_has_timed_out_makes_the_commit_an_abort() -> None:
    made = begun()
    book = play_end(made)
    book.answered(known(HOME), known(NEXT_THERE, "CompleteAbort"))
    assert book.answer.error_code == ErrorCode.TRANSACTION_ABORTABLE
    book = play_end(made, commit=False)
    book.answered(known(HOME), known(NEXT_THERE, "CompleteAbort"))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, False))]


def test_a_new_part_is_only_trusted_under_its_first_epoch() -> None:
    for there, commits in ((THERE, True), (NEXT_THERE, False)):
        book = play_end(begun(there=None))
        book.answered(known(HOME), known(there))
        if commits:
            assert asked(book) == [("c2", EndTxnRequest("tx", *there, True))]
        else:
            assert book.answer.error_code == ErrorCode.TRANSACTION_ABORTABLE


def test_a_gateway_that_was_not_there_at_the_beginning_may_abort_and_begin() -> None:
    made = world()
    book = play_end(made, version=3)
    book.answered(known(HOME), known(THERE))
    assert book.answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING, "older clients can abort upon that"
    book = play_end(made, commit=False, version=3)
    book.answered(known(HOME), known(THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *THERE, False))]
    book.answered(EndTxnResponse())
    book.answered(EndTxnResponse())
    book = play_end(made, version=3)
    book.answered(known(HOME), known(THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *THERE, True))]


def test_a_cluster_that_is_away_may_hold_a_part() -> None:
    for commit in (True, False):
        book = play_end(begun(), commit=commit)
        book.answered(known(HOME), Unreachable("c2", "down"))
        assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_part_that_fails_leaves_the_others_to_be_aborted() -> None:
    book = play_end(begun())
    book.answered(known(HOME), known(THERE))
    book.answered(EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
    assert book.answer.error_code == ErrorCode.TRANSACTION_ABORTABLE


def test_who_is_not_the_one_at_home_ends_nothing() -> None:
    book = play_end(begun(), Identity(7, 2))
    book.answered(known(HOME), known(THERE))
    assert asked(book) == [("c1", EndTxnRequest("tx", 7, 2, True))], "has it missed an answer?"
    book.answered(EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
    assert book.answer.error_code == ErrorCode.PRODUCER_FENCED
    book = play_end(begun(), Identity(7, 2), version=3)
    book.answered(known(HOME), known(THERE))
    assert book.answer.error_code == ErrorCode.PRODUCER_FENCED


def test_what_began_over_clusters_ends_on_all_of_them_whatever_the_rule_says_now() -> None:
    made = world(spans=False, memory=begun().memory)
    book = play_end(made)
    book.answered(known(HOME), known(THERE))
    assert asked(book) == [("c2", EndTxnRequest("tx", *THERE, True))]


def test_a_transaction_ends_where_it_began_and_its_producer_moves() -> None:
    book = play_end(world(spans=False, home="c2"))
    assert asked(book) == [("c2", EndTxnRequest("tx", *HOME, True))]
    book.answered(EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    assert asks_about_it(book) == ["c1"]
    book.answered(known(HOME))
    assert asked(book) == [("c1", EndTxnRequest("tx", *HOME, True))]
    book.answered(ended(NEXT_AT_HOME))
    assert asked(book) == [("c2", InitProducerIdRequest("tx", 60_000))]
    book.answered(given(THERE))
    assert book.answer == ended(THERE)


def test_records_of_a_producer_whose_id_has_moved_end_in_an_abort() -> None:
    for version in (11, 12):
        records = PartitionProduceData(0, batch(producer_id=HOME.producer_id, epoch=HOME.epoch, sequence=0))
        message = ProduceRequest("tx", -1, 30_000, [TopicProduceData("bananas", partition_data=[records])])
        book = Playbook(produce.handle, message, version, world(spans=False, home="c2").view())
        refused = PartitionProduceResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
        book.answered(
            raw_answer(ProduceResponse([TopicProduceResponse("bananas", partition_responses=[refused])]), version)
        )
        assert errors(book) == {"bananas": ErrorCode.TRANSACTION_ABORTABLE}
    book = play_produce(world(home="c2"), "apples")
    book.answered(known(HOME), NOT_FOUND)
    assert errors(book) == {"apples": ErrorCode.TRANSACTION_ABORTABLE}, "it spans clusters, and its home is another one"


def raw_answer(response: ProduceResponse, version: int) -> RawResponse:
    frame = memoryview(bytearray(encode_response(response, version, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.PRODUCE, version)
    return RawResponse(frame, header.body_offset, version)


def test_a_producer_that_goes_on_has_its_old_identity_checked_where_it_comes_from() -> None:
    moved = world(spans=False, home="c2")
    book = play_begin(moved, HOME)
    assert asks_about_it(book) == ["c1", "c2"]
    book.answered(known(HOME, "CompleteAbort"), NOT_FOUND)
    assert asked(book) == [("c1", InitProducerIdRequest("tx", 60_000, *HOME))]
    book.answered(given(NEXT_AT_HOME))
    assert asked(book) == [("c2", InitProducerIdRequest("tx", 60_000))]
    book.answered(given(THERE))
    book.answered(known(NEXT_AT_HOME, "Empty"))
    assert (book.answer.producer_id, book.answer.producer_epoch) == THERE
    replaced = play_begin(moved, HOME)
    replaced.answered(known(NEXT_AT_HOME, "Empty"), NOT_FOUND)
    replaced.answered(InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED))
    assert replaced.answer.error_code == ErrorCode.PRODUCER_FENCED


def test_an_abort_of_nothing_is_done() -> None:
    for commit, error in ((False, 0), (True, ErrorCode.INVALID_TXN_STATE)):
        book = play_end(world(spans=False), commit=commit, version=1)
        book.answered(EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
        assert book.answer.error_code == error


def test_what_is_remembered_of_an_earlier_identity_does_not_count() -> None:
    made = world(spans=False, memory=begun().memory)
    book = play_end(made, NEXT_AT_HOME)
    assert asked(book) == [("c1", EndTxnRequest("tx", *NEXT_AT_HOME, True))]
