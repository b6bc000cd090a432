"""Transactions as administrators see them: listed, described and aborted over all clusters."""

from mesh.transactions import STATE_TOPIC, TRANSACTIONS_TOPIC
from services.gateway.requests.knowledge import TopicKnowledge, VersionRange
from services.gateway.requests.plan import Broker, Coordinator, KeyType, Refresh, Unreachable
from services.gateway.requests.transactions import describe_transactions, list_transactions, write_txn_markers
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from services.gateway.wire.messages import list_transactions as listed
from services.gateway.wire.messages.describe_transactions import TopicData, TransactionState
from services.gateway.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
)
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.transactions.test_atomic_transactions import half_committed


def world(*with_transactions: str) -> World:
    """apples on c1, the home of all transactional ids, bananas on c2; these clusters have coordinated transactions."""
    made = World({"c1": ["apples"], "c2": ["bananas"]})
    for cluster in with_transactions:
        made.clusters[cluster].topics[STATE_TOPIC] = TopicKnowledge(STATE_TOPIC, bytes(16), (1,))
    return made


def told(state: str, producer_id: int, *topics: str, error: int = 0) -> DescribeTransactionsResponse:
    data = [TopicData(topic, [0]) for topic in topics]
    return DescribeTransactionsResponse(0, [TransactionState(error, "tx", state, 60_000, 5, producer_id, 2, data)])


def describe(in_world: World) -> Playbook:
    return Playbook(describe_transactions.handle, DescribeTransactionsRequest(["tx"]), 0, in_world.view())


def test_every_broker_is_asked_with_the_clients_filters() -> None:
    filters = ListTransactionsRequest(["Ongoing"], [7], 1000, "t.*")
    book = Playbook(list_transactions.handle, filters, 2, world().view())
    assert [(call.cluster, call.target, call.message) for call in book.asked()] == [
        ("c1", Broker(1), filters),
        ("c2", Broker(2), filters),
    ]
    one = listed.TransactionState("tx", 7, "Ongoing")
    other, more = listed.TransactionState("tx", 9, "Ongoing"), listed.TransactionState("ty", 7, "Ongoing")
    book.answered(
        ListTransactionsResponse(0, 0, ["Odd"], [one]), ListTransactionsResponse(0, 0, ["Odd"], [other, more])
    )
    assert book.answer.transaction_states == [one, other, more]
    assert book.answer.unknown_state_filters == ["Odd"]


def test_an_id_with_a_part_on_each_cluster_is_listed_once_under_its_identity_at_home() -> None:
    book = Playbook(list_transactions.handle, ListTransactionsRequest(), 0, world().view())
    at_home, part = listed.TransactionState("tx", 7, "CompleteCommit"), listed.TransactionState("tx", 9, "Ongoing")
    other = listed.TransactionState("ty", 9, "Empty")
    book.answered(
        ListTransactionsResponse(transaction_states=[at_home]),
        ListTransactionsResponse(transaction_states=[part, other]),
    )
    assert book.answer.transaction_states == [listed.TransactionState("tx", 7, "Ongoing"), other]


def test_a_client_that_asks_every_node_is_told_each_id_by_the_first_node_alone() -> None:
    shown_two_nodes = world()
    shown_two_nodes.by_node_id = True
    view = shown_two_nodes.view()
    first, second = (node.node_id for node in view.nodes.all)
    view.session.asked_node = second
    book = Playbook(list_transactions.handle, ListTransactionsRequest(), 0, view)
    assert book.answer == ListTransactionsResponse()
    view.session.asked_node = first
    assert len(Playbook(list_transactions.handle, ListTransactionsRequest(), 0, view).asked()) == 2


def test_a_cluster_that_does_not_know_the_filter_is_not_passed_over() -> None:
    older = world()
    older.clusters["c2"].versions[ApiKey.LIST_TRANSACTIONS] = VersionRange(0, 0)
    book = Playbook(list_transactions.handle, ListTransactionsRequest(duration_filter=1000), 1, older.view())
    book.answered(ListTransactionsResponse())
    assert book.answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    del older.clusters["c2"].versions[ApiKey.LIST_TRANSACTIONS]  # before 3.0 nobody could ask
    book = Playbook(list_transactions.handle, ListTransactionsRequest(duration_filter=1000), 1, older.view())
    book.answered(ListTransactionsResponse())
    assert book.answer.error_code == ErrorCode.NONE


def test_a_cluster_that_is_away_hides_its_transactions_and_no_others() -> None:
    book = Playbook(list_transactions.handle, ListTransactionsRequest(), 0, world().view())
    one = listed.TransactionState("tx", 7, "Empty")
    book.answered(Unreachable("c1", "down"), ListTransactionsResponse(transaction_states=[one]))
    assert book.answer.transaction_states == [one]


def test_only_clusters_that_have_transactions_are_asked_about_one() -> None:
    book = describe(world("c1"))
    (call,) = book.asked()
    assert (call.cluster, call.target) == ("c1", Coordinator("tx", KeyType.TRANSACTION))
    assert Refresh("c2", (STATE_TOPIC,)) in book.noted
    book.answered(told("Ongoing", 7, "apples", "__consumer_offsets"))
    (state,) = book.answer.transaction_states
    assert (state.transaction_state, state.producer_id, [topic.topic for topic in state.topics]) == (
        "Ongoing",
        7,
        ["apples"],
    )


def test_the_list_of_parts_that_home_keeps_is_shown_to_nobody() -> None:
    book = describe(world("c1", "c2"))
    book.answered(told("Ongoing", 7, TRANSACTIONS_TOPIC), told("Ongoing", 3, "bananas"))
    (state,) = book.answer.transaction_states
    assert [topic.topic for topic in state.topics] == ["bananas"]


def test_a_part_on_another_cluster_is_shown_under_the_identity_at_home() -> None:
    book = describe(world("c1", "c2"))
    book.answered(told("CompleteCommit", 7), told("Ongoing", 3, "bananas"))
    (state,) = book.answer.transaction_states
    assert (state.transaction_state, state.producer_id, [topic.topic for topic in state.topics]) == (
        "Ongoing",
        7,
        ["bananas"],
    )


def test_an_id_that_nobody_knows_is_not_found_unless_a_cluster_could_not_be_asked() -> None:
    unknown = told("", -1, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    book = describe(world("c1", "c2"))
    book.answered(unknown, unknown)
    assert book.answer.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    book = describe(world("c1", "c2"))
    book.answered(unknown, Unreachable("c2", "down"))
    assert book.answer.transaction_states[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_abort_goes_to_the_leaders_of_its_partitions() -> None:
    topics = [WritableTxnMarkerTopic("apples", [0]), WritableTxnMarkerTopic("bananas", [0])]
    marker = WritableTxnMarker(7, 2, False, topics, 11, 2)
    book = Playbook(write_txn_markers.handle, WriteTxnMarkersRequest([marker]), 2, world().view())
    apples, bananas = book.asked()
    assert (apples.cluster, bananas.cluster) == ("c1", "c2")
    assert isinstance(bananas.message, WriteTxnMarkersRequest)
    (sent,) = bananas.message.markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch, sent.topics) == (7, 2, 11, topics[1:])
    book.answered(written("apples", 0), written("bananas", ErrorCode.INVALID_PRODUCER_EPOCH))
    assert book.answer == WriteTxnMarkersResponse(
        [WritableTxnMarkerResult(7, [result("apples", 0), result("bananas", ErrorCode.INVALID_PRODUCER_EPOCH)])]
    )


def test_an_abort_of_one_part_of_a_decided_transaction_is_refused() -> None:
    mesh = half_committed()
    waiting = mesh.clusters["c2"].ids["tx"].identity
    marker = WritableTxnMarker(*waiting, False, [WritableTxnMarkerTopic("bananas", [0])], 11, 2)
    answer = mesh.ask(write_txn_markers.handle, WriteTxnMarkersRequest([marker]), 2)
    (refused,) = answer.markers
    assert refused.topics == [result("bananas", ErrorCode.INVALID_TXN_STATE)]


def test_an_abort_of_a_partition_waits_for_the_log_of_decisions() -> None:
    mesh = half_committed()
    mesh.clusters["c1"].away = True
    marker = WritableTxnMarker(1, 0, False, [WritableTxnMarkerTopic("bananas", [0])], 11, 2)
    answer = mesh.ask(write_txn_markers.handle, WriteTxnMarkersRequest([marker]), 2)
    assert answer.markers[0].topics == [result("bananas", ErrorCode.COORDINATOR_NOT_AVAILABLE)]


def result(topic: str, error: int) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(topic, [WritableTxnMarkerPartitionResult(0, error)])


def written(topic: str, error: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse([WritableTxnMarkerResult(7, [result(topic, error)])])
