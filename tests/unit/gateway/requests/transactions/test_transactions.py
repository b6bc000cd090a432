"""Transactions as single requests: what goes to which coordinator, and what clusters before Kafka 3.0 are refused."""

import pytest

from mesh.routing import ExactName, ForwardingRule, NamePrefix, RoutingTable, RuleVersion, Subject
from mesh.transactions import TRANSACTIONS_TOPIC, Identity
from services.gateway.requests.knowledge import TopicKnowledge, VersionRange
from services.gateway.requests.plan import Coordinator, Forget, Handle, KeyType, Lane, Unreachable, Verbatim
from services.gateway.requests.records import produce
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.transactions import add_partitions, end, init_producer_id, offsets
from services.gateway.requests.transactions.state import Producer
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from services.gateway.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.wire.records import batch

TX = Coordinator("tx", KeyType.TRANSACTION)


def world(home: str | None = None, *, older: str | None = None) -> World:
    """apples on c1, bananas on c2; the id "tx" lives on `home`, by a rule, or on c1, the first cluster of the mesh.
    The cluster `older` is from before Kafka 3.0."""
    made = World({"c1": ["apples"], "c2": ["bananas"]})
    for knowledge in made.clusters.values():
        broker = next(iter(knowledge.brokers))
        knowledge.topics[TRANSACTIONS_TOPIC] = TopicKnowledge(TRANSACTIONS_TOPIC, bytes(16), (broker,) * 13)
    if older is not None:
        del made.clusters[older].versions[ApiKey.DESCRIBE_TRANSACTIONS]
    return made if home is None else with_transaction_rule(made, home)


def with_transaction_rule(made: World, home: str) -> World:
    rule = ForwardingRule("tx-rule", ExactName("tx", Subject.TRANSACTIONAL_ID), home)
    made.table = RoutingTable(2, made.table.clusters.values(), [*made.table.versions, RuleVersion(rule, 99.0, 2)])
    return made


def play(handle: Handle, message: Struct, version: int, in_world: World) -> Playbook:
    return Playbook(handle, message, version, in_world.view())


def produced(*topics: str) -> ProduceRequest:
    wanted = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch())]) for topic in topics]
    return ProduceRequest("tx", -1, 30_000, wanted)


def added(*topics: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest([], "tx", 7, 0, [AddPartitionsToTxnTopic(topic, [0]) for topic in topics])


def committed(*topics: str, generation: int = -1, member: str = "") -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(0, 5)
    wanted = [TxnOffsetCommitRequestTopic(topic, partitions=[partition]) for topic in topics]
    return TxnOffsetCommitRequest("tx", "pickers", 7, 0, generation, member, None, wanted)


def errors_of_partitions(answer: AddPartitionsToTxnResponse) -> dict[str, int]:
    results = answer.results_by_topic_v3_and_below
    return {topic.name: p.partition_error_code for topic in results for p in topic.results_by_partition}


def errors_of_offsets(answer: TxnOffsetCommitResponse) -> dict[str, int]:
    return {topic.name: partition.error_code for topic in answer.topics for partition in topic.partitions}


@pytest.mark.parametrize(("rule", "home"), [(None, "c1"), ("c2", "c2")])
@pytest.mark.parametrize(
    ("handle", "message", "version", "answer"),
    [
        (init_producer_id.handle, InitProducerIdRequest("tx", 60_000), 4, InitProducerIdResponse(0, 0, 7, 3)),
        (end.handle, EndTxnRequest("tx", 7, 3, False), 5, EndTxnResponse(0, 0, 7, 4)),
        (end.handle, EndTxnRequest("tx", 7, 3, False), 2, EndTxnResponse(0, ErrorCode.PRODUCER_FENCED)),
    ],
)
def test_the_coordinator_at_home_is_asked_and_its_answer_is_the_clients(
    rule: str | None, home: str, handle: Handle, message: Struct, version: int, answer: Struct
) -> None:
    book = play(handle, message, version, world(rule))
    (call,) = book.asked()
    assert (call.cluster, call.target, call.version, call.lane) == (home, TX, version, Lane.CLIENT)
    assert call.message == message
    book.answered(answer)
    assert book.answer == answer


def test_records_of_a_transaction_go_untouched_to_its_home() -> None:
    book = play(produce.handle, produced("apples"), 9, world())
    (call,) = book.asked()
    assert call.cluster == "c1" and isinstance(call.message, Verbatim)


@pytest.mark.parametrize("older", ["c1", "c2"])
def test_records_for_a_cluster_that_takes_no_part_are_refused_and_the_others_go_on(older: str) -> None:
    book = play(produce.handle, produced("apples", "bananas"), 9, world(older=older))
    assert [call.cluster for call in book.asked()] == ["c1"]
    book.all_unreachable()
    errors = {topic.name: topic.partition_responses[0].error_code for topic in book.answer.responses}
    assert errors["bananas"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("at_home", "told"),
    [
        (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_first_partition_is_refused_when_home_has_something_to_abort_and_not_before(
    at_home: ErrorCode, told: ErrorCode
) -> None:
    """A coordinator that still ends the transaction before answers an abort with an error of which librdkafka dies."""
    made = world(older="c2")
    book = play(add_partitions.handle, added("bananas"), 3, made)
    (call,) = book.asked()
    assert (call.cluster, call.key) == ("c1", ApiKey.ADD_PARTITIONS_TO_TXN)
    result = AddPartitionsToTxnTopicResult(TRANSACTIONS_TOPIC, [AddPartitionsToTxnPartitionResult(0, at_home)])
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result]))
    assert errors_of_partitions(book.answer) == {"bananas": told}


@pytest.mark.parametrize(
    ("at_home", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_records_for_another_cluster_are_not_sent_before_home_has_taken_their_producer(
    at_home: ErrorCode, told: ErrorCode
) -> None:
    made = world()
    made.memory.producers.put("tx", Producer("c1", Identity(-1, -1), {"c2": Identity(40, 2)}), made.now)
    book = play(produce.handle, produced("bananas"), 12, made)
    (call,) = book.asked()
    assert (call.cluster, call.key) == ("c1", ApiKey.ADD_PARTITIONS_TO_TXN)
    result = AddPartitionsToTxnTopicResult(TRANSACTIONS_TOPIC, [AddPartitionsToTxnPartitionResult(11, at_home)])
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result]))
    assert book.answer.responses[0].partition_responses[0].error_code == told


def test_the_coordinators_id_stays_on_a_topics_second_visit() -> None:
    twice = world()
    twice.move("apples", "c2")
    twice.move("apples", "c1")
    frames = play(produce.handle, produced("apples"), 9, twice)
    look_up, *_ = frames.asked()
    assert look_up.cluster == "c2", "the last cluster is asked for repeats"
    frames.all_unreachable()
    (call,) = frames.asked()
    assert isinstance(call.message, Verbatim)
    assert bytes(batch()) in bytes(call.message.frame)


def test_partitions_are_added_at_home() -> None:
    book = play(add_partitions.handle, added("apples"), 3, world())
    (call,) = book.asked()
    assert (call.cluster, call.target) == ("c1", TX)
    result = AddPartitionsToTxnTopicResult("apples", [AddPartitionsToTxnPartitionResult(0, 0)])
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result]))
    assert errors_of_partitions(book.answer) == {"apples": 0}


def test_one_partition_on_a_cluster_that_takes_no_part_and_none_is_added() -> None:
    book = play(add_partitions.handle, added("apples", "bananas"), 3, world(older="c2"))
    (call,) = book.asked()
    opening = AddPartitionsToTxnRequest([], "tx", 7, 0, [AddPartitionsToTxnTopic(TRANSACTIONS_TOPIC, [0])])
    assert (call.cluster, call.message) == ("c1", opening), "it has something to abort"
    book.all_unreachable()
    assert errors_of_partitions(book.answer) == {
        "apples": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "bananas": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_a_topic_of_the_mesh_itself_is_unknown_to_clients() -> None:
    book = play(add_partitions.handle, added("apples", TRANSACTIONS_TOPIC), 3, world())
    assert errors_of_partitions(book.answer) == {
        "apples": ErrorCode.OPERATION_NOT_ATTEMPTED,
        TRANSACTIONS_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    book = play(add_partitions.handle, added("apples"), 3, world())
    result = AddPartitionsToTxnTopicResult("apples", [AddPartitionsToTxnPartitionResult(0, ErrorCode.NOT_COORDINATOR)])
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result]))
    assert Forget("c1", TX) in book.noted
    book = play(end.handle, EndTxnRequest("tx", 7, 3, True), 3, world())
    book.answered(Unreachable("c1", "connection lost"))
    assert Forget("c1", TX) in book.noted
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def stored(topic: str) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(topic, partitions=[TxnOffsetCommitResponsePartition(0, 0)])]
    )


def group_on(cluster: str, made: World) -> World:
    group = ForwardingRule("g", NamePrefix("pick", Subject.GROUP), cluster)
    made.table = RoutingTable(3, made.table.clusters.values(), [*made.table.versions, RuleVersion(group, 98.0, 3)])
    return made


def part_in(made: World, cluster: str) -> World:
    """The producer is known to have a part of its transaction there, as 40."""
    producer = Producer("c1", Identity(7, 0), {cluster: Identity(40, 2)}, {cluster})
    made.memory.producers.put("tx", producer, made.now)
    return made


def test_a_group_is_added_where_it_lives() -> None:
    message = AddOffsetsToTxnRequest("tx", 7, 0, "pickers")
    book = play(offsets.handle_add, message, 3, group_on("c1", world()))
    (call,) = book.asked()
    assert (call.cluster, call.target, call.message) == ("c1", TX, message)
    book.answered(AddOffsetsToTxnResponse())
    assert book.answer == AddOffsetsToTxnResponse()
    book = play(offsets.handle_add, message, 3, group_on("c2", part_in(world(), "c2")))
    (call,) = book.asked()
    assert (call.cluster, call.key) == ("c1", ApiKey.ADD_PARTITIONS_TO_TXN), "home is told of the part"
    result = AddPartitionsToTxnTopicResult(TRANSACTIONS_TOPIC, [AddPartitionsToTxnPartitionResult(11, 0)])
    book.answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result]))
    (call,) = book.asked()
    assert (call.cluster, call.message) == ("c2", AddOffsetsToTxnRequest("tx", 40, 2, "pickers"))


def test_a_members_offsets_are_checked_by_its_group_first_and_lie_beside_their_topics() -> None:
    made = group_on("c1", part_in(world(), "c2"))
    book = play(offsets.handle_commit, committed("bananas", "apples", generation=4, member="m-1"), 5, made)
    (call,) = book.asked()
    assert (call.cluster, call.target) == ("c1", Coordinator("pickers"))
    assert call.message == committed("apples", generation=4, member="m-1")
    book.answered(stored("apples"))
    (call,) = book.asked()
    plain = committed("bananas")
    plain.producer_id, plain.producer_epoch = 40, 2
    assert (call.cluster, call.target, call.message) == ("c2", Coordinator("pickers"), plain)
    book.answered(stored("bananas"))
    assert errors_of_offsets(book.answer) == {"apples": 0, "bananas": 0}


def test_a_member_that_was_replaced_commits_no_offsets_anywhere() -> None:
    made = group_on("c1", part_in(world(), "c2"))
    book = play(offsets.handle_commit, committed("bananas", generation=4, member="m-1"), 5, made)
    (call,) = book.asked()
    assert call.message == HeartbeatRequest("pickers", 4, "m-1")
    book.answered(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert errors_of_offsets(book.answer) == {"bananas": ErrorCode.ILLEGAL_GENERATION}


def test_offsets_of_topics_that_are_told_by_ids_are_answered_by_ids() -> None:
    """KIP-1319: ids are the mesh's own, so clusters are asked by name."""
    made = world()
    apples, strange = mesh_topic_id(made.view().mesh_id, "apples"), b"?" * 16
    message = committed("", "")
    message.topics[0].topic_id, message.topics[1].topic_id = apples, strange
    book = play(offsets.handle_commit, message, 6, made)
    book.answered(Unreachable("c1", "away"), Unreachable("c2", "away"))  # nobody knows the other topic
    (call,) = book.asked()
    assert isinstance(call.message, TxnOffsetCommitRequest)
    assert [topic.name for topic in call.message.topics] == ["apples"]
    assert call.version == 5
    book.answered(stored("apples"))
    errors = {topic.topic_id: topic.partitions[0].error_code for topic in book.answer.topics}
    assert errors == {apples: 0, strange: ErrorCode.UNKNOWN_TOPIC_ID}


def test_offsets_of_topics_on_a_cluster_that_takes_no_part_are_refused() -> None:
    book = play(offsets.handle_commit, committed("apples", "bananas"), 3, world(older="c2"))
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert errors_of_offsets(book.answer) == {"apples": refused, "bananas": refused}


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_nothing_is_answered_as_a_broker_does(commit: bool) -> None:
    book = play(end.handle, EndTxnRequest("tx", 7, 3, commit), 1, world())
    book.answered(EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    assert book.answer.error_code == ErrorCode.INVALID_TXN_STATE


def test_the_second_protocol_is_not_spoken_to_a_cluster_of_the_first() -> None:
    older = world()
    older.clusters["c1"].versions[ApiKey.END_TXN] = VersionRange(0, 3)
    book = play(end.handle, EndTxnRequest("tx", 7, 3, True), 5, older)
    assert book.answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    book = play(end.handle, EndTxnRequest("tx", 7, 3, True), 4, older)
    assert book.asked()[0].version == 3
