"""Parts of requests are refused, and what a client may not see is left out of answers."""

from __future__ import annotations

from typing import Any

from mesh.acls import Acl, Operation, ResourceType
from services.gateway.requests.plan import Close, NoAnswer
from services.gateway.requests.records.fetch_sessions import Position, Slot
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    fetch,
    init_producer_id,
    list_groups,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from services.gateway.wire.schema import NO_UUID
from tests.unit.gateway.authorization.asked import NAMES, access_of, acl, allow, ask, topic_id
from tests.unit.gateway.requests.playbook import World

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
Op = Operation
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def all_topics(_: Any) -> metadata.MetadataResponse:
    topics = [metadata.MetadataResponseTopic(0, name, topic_id(name)) for name in NAMES]
    return metadata.MetadataResponse(cluster_id="mesh-id", topics=topics)


def as_asked(message: metadata.MetadataRequest) -> metadata.MetadataResponse:
    """Each topic that is asked for, by name or id; `missing` is missing."""
    names = {topic_id(name): name for name in NAMES}
    told = [each.name or names[each.topic_id] for each in message.topics or ()]
    return metadata.MetadataResponse(
        topics=[
            metadata.MetadataResponseTopic(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name.startswith("missing") else 0, name, topic_id(name)
            )
            for name in told
        ]
    )


def shown(answer: metadata.MetadataResponse) -> dict[str | bytes | None, int]:
    return {each.name or each.topic_id: each.error_code for each in answer.topics}


def test_all_topics_are_those_that_a_client_may_describe() -> None:
    asked = ask(metadata.MetadataRequest(None), 12, access_of([allow(Op.READ, TOPIC, "b...")]), all_topics)
    assert shown(asked.answer) == {"bananas": 0}
    assert not asked.refusals


def test_a_topic_that_is_asked_for_by_id_has_no_name_for_a_client_that_may_not_describe_it() -> None:
    """As on brokers, which hold an id to be no secret."""
    wanted = [metadata.MetadataRequestTopic(topic_id(name), None) for name in ("apples", "bananas")]
    asked = ask(metadata.MetadataRequest(wanted), 12, access_of([allow(Op.READ, TOPIC, "apples")]), as_asked)
    assert shown(asked.answer) == {"apples": 0, topic_id("bananas"): REFUSED}
    assert all(each.name is None for each in asked.answer.topics if each.error_code)


def test_a_missing_topic_is_created_for_a_client_that_may_create_it() -> None:
    wanted = [metadata.MetadataRequestTopic(NO_UUID, name) for name in ("apples", "missing-1", "missing-2")]
    acls = [allow(Op.WRITE, TOPIC, "a..."), allow(Op.WRITE, TOPIC, "m..."), allow(Op.CREATE, TOPIC, "missing-2")]
    asked = ask(metadata.MetadataRequest(wanted), 12, access_of(acls), as_asked)
    created = [[each.name for each in m.topics or ()] for m in asked.went_on if m.allow_auto_topic_creation]  # type: ignore[attr-defined]
    assert created == [["missing-2"]]
    assert shown(asked.answer) == {
        "apples": 0,
        "missing-1": REFUSED,
        "missing-2": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert asked.refused == {("CREATE", "TOPIC", "missing-1")}


def test_authorized_operations_are_those_of_the_policy() -> None:
    message = metadata.MetadataRequest(None, include_topic_authorized_operations=True)
    acls = [allow(Op.ALL, TOPIC, "apples"), acl("deny", Op.DELETE, TOPIC, "*"), allow(Op.READ, TOPIC, "bananas")]
    asked = ask(message, 12, access_of(acls), all_topics)
    operations = {each.name: each.topic_authorized_operations for each in asked.answer.topics}
    every = {Op.READ, Op.WRITE, Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS}
    assert operations == {"apples": sum(each.bit for each in every), "bananas": Op.READ.bit | Op.DESCRIBE.bit}


def test_authorized_operations_are_those_that_the_topics_cluster_allows_the_mesh_too() -> None:
    message = metadata.MetadataRequest(None, include_topic_authorized_operations=True)

    def read_alone(_: object) -> metadata.MetadataResponse:
        told = Op.READ.bit | Op.DESCRIBE.bit | Op.DELETE.bit
        topic = metadata.MetadataResponseTopic(name="apples", topic_authorized_operations=told)
        return metadata.MetadataResponse(topics=[topic])

    asked = ask(message, 12, access_of([allow(Op.READ, TOPIC, "apples"), allow(Op.WRITE, TOPIC, "apples")]), read_alone)
    [topic] = asked.answer.topics
    assert topic.topic_authorized_operations == Op.READ.bit | Op.DESCRIBE.bit


def test_the_operations_on_the_cluster_are_told_to_those_who_may_describe_it() -> None:
    message = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)

    def operations(*acls: Acl) -> int:
        given = describe_cluster.DescribeClusterResponse(cluster_authorized_operations=-1)
        asked = ask(message, 1, access_of(acls), lambda _: given)
        return int(asked.answer.cluster_authorized_operations)

    assert operations(allow(Op.CREATE, CLUSTER, "kafka-cluster")) == 0
    assert operations(allow(Op.ALTER, CLUSTER, "kafka-cluster")) == Op.ALTER.bit | Op.DESCRIBE.bit


def test_a_page_of_topics_does_not_end_with_a_name_that_is_hidden() -> None:
    parts = describe_topic_partitions
    order = [*NAMES, "dates"]

    def page(message: parts.DescribeTopicPartitionsRequest) -> parts.DescribeTopicPartitionsResponse:
        start = order.index(message.cursor.topic_name) if message.cursor else 0
        following = order[start + 1] if start + 1 < len(order) else None
        cursor = None if following is None else parts.Cursor(following, 0)
        topics = [parts.DescribeTopicPartitionsResponseTopic(0, order[start])]
        return parts.DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)

    asked = ask(
        parts.DescribeTopicPartitionsRequest(response_partition_limit=1),
        0,
        access_of([allow(Op.DESCRIBE, TOPIC, "apples"), allow(Op.DESCRIBE, TOPIC, "dates")]),
        page,
    )
    assert [each.name for each in asked.answer.topics] == ["apples"]
    assert asked.answer.next_cursor.topic_name == "dates"


def written(message: produce.ProduceRequest) -> produce.ProduceResponse:
    return produce.ProduceResponse(
        [
            produce.TopicProduceResponse(
                each.name, each.topic_id, [produce.PartitionProduceResponse(p.index) for p in each.partition_data]
            )
            for each in message.topic_data
        ]
    )


def records_for(*topics: str, acks: int = -1, transaction: str | None = None) -> produce.ProduceRequest:
    data = [produce.TopicProduceData(name, partition_data=[produce.PartitionProduceData(0, b"")]) for name in topics]
    return produce.ProduceRequest(transaction, acks, 1000, data)


def test_a_produce_goes_on_for_the_topics_that_its_client_may_write_to() -> None:
    acls = [allow(Op.WRITE, TOPIC, "apples")]
    asked = ask(records_for("apples", "bananas"), 9, access_of(acls), written)
    assert {each.name: each.partition_responses[0].error_code for each in asked.answer.responses} == {
        "apples": 0,
        "bananas": REFUSED,
    }
    assert [each.name for each in asked.went_on[0].topic_data] == ["apples"]  # type: ignore[attr-defined]


def test_a_produce_without_acks_that_is_refused_closes_the_connection() -> None:
    acls = [allow(Op.WRITE, TOPIC, "apples")]
    assert isinstance(ask(records_for("bananas", acks=0), 9, access_of(acls)).answer, Close)
    asked = ask(records_for("apples", acks=0), 9, access_of(acls), lambda _: NoAnswer())  # type: ignore[arg-type,return-value]
    assert asked.answer == NoAnswer()


def test_records_of_a_transaction_need_its_id() -> None:
    acls = [allow(Op.WRITE, TOPIC, "apples"), allow(Op.WRITE, TRANSACTION, "mine")]
    asked = ask(records_for("apples", transaction="other"), 9, access_of(acls))
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert asked.answer.responses[0].partition_responses[0].error_code == code
    assert ask(records_for("apples", transaction="mine"), 9, access_of(acls), written).went_on


def test_if_one_topic_is_refused_no_partition_is_added_to_the_transaction() -> None:
    shapes = add_partitions_to_txn
    topics = [shapes.AddPartitionsToTxnTopic(name, [0]) for name in ("apples", "bananas")]
    message = shapes.AddPartitionsToTxnRequest(v3_and_below_transactional_id="mine", v3_and_below_topics=topics)
    acls = [allow(Op.WRITE, TOPIC, "apples"), allow(Op.WRITE, TRANSACTION, "mine")]
    results = ask(message, 3, access_of(acls)).answer.results_by_topic_v3_and_below
    assert {each.name: each.results_by_partition[0].partition_error_code for each in results} == {
        "apples": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "bananas": REFUSED,
    }


def test_an_idempotent_producer_needs_a_topic_that_it_may_write_to() -> None:
    message = init_producer_id.InitProducerIdRequest(None)
    done = init_producer_id.InitProducerIdResponse()
    assert ask(message, 4, access_of([])).answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ask(message, 4, access_of([allow(Op.WRITE, TOPIC, "a...")]), lambda _: done).answer is done
    assert ask(message, 4, access_of([allow(Op.IDEMPOTENT_WRITE, CLUSTER, "*")]), lambda _: done).answer is done


def fetched(message: fetch.FetchRequest) -> fetch.FetchResponse:
    topics = [fetch.FetchableTopicResponse(each.topic, each.topic_id) for each in message.topics]
    return fetch.FetchResponse(session_id=message.session_id, responses=topics)


def fetch_of(*topics: str, session_id: int = 0, epoch: int = 0) -> fetch.FetchRequest:
    wanted = [fetch.FetchTopic(name, partitions=[fetch.FetchPartition(0, -1, 0)]) for name in topics]
    return fetch.FetchRequest(
        max_wait_ms=1, min_bytes=1, max_bytes=1000, session_id=session_id, session_epoch=epoch, topics=wanted
    )


def test_a_fetch_that_is_refused_in_part_begins_no_session() -> None:
    asked = ask(fetch_of("apples", "bananas"), 12, access_of([allow(Op.READ, TOPIC, "apples")]), fetched)
    [went_on] = asked.went_on
    assert ([each.topic for each in went_on.topics], went_on.session_epoch) == (["apples"], -1)  # type: ignore[attr-defined]
    told = {each.topic: [p.error_code for p in each.partitions] for each in asked.answer.responses}
    assert told == {"apples": [], "bananas": [REFUSED]}


def test_a_session_ends_when_its_client_may_not_read_one_of_its_topics_any_more() -> None:
    world = World({"c1": NAMES})
    wanted: dict[Slot, Position] = {("apples", 0): Position(0, 1000), ("bananas", 0): Position(0, 1000)}
    session = world.memory.fetch_sessions.begin(wanted, by_ids=False, now=world.now, random_bits=lambda _: 7)
    assert session is not None
    message = fetch_of(session_id=session.session_id, epoch=1)
    read_both = access_of([allow(Op.READ, TOPIC, "*")])
    assert ask(message, 12, read_both, fetched, world).went_on
    asked = ask(message, 12, access_of([allow(Op.READ, TOPIC, "apples")]), None, world)
    assert asked.answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert asked.refused == {("READ", "TOPIC", "bananas")}


def deleted(message: delete_topics.DeleteTopicsRequest) -> delete_topics.DeleteTopicsResponse:
    names = [*message.topic_names, *(each.name for each in message.topics)]
    results = [delete_topics.DeletableTopicResult(name, NO_UUID, 0, None) for name in names]
    return delete_topics.DeleteTopicsResponse(responses=results)


def test_a_deletion_by_id_tells_the_name_to_those_who_may_describe_it() -> None:
    states = [delete_topics.DeleteTopicState(None, topic_id(name)) for name in ("apples", "bananas")]
    asked = ask(delete_topics.DeleteTopicsRequest(states), 6, access_of([allow(Op.DESCRIBE, TOPIC, "apples")]))
    assert {each.topic_id: (each.name, each.error_code) for each in asked.answer.responses} == {
        topic_id("apples"): ("apples", REFUSED),
        topic_id("bananas"): (None, REFUSED),
    }


def test_a_topic_is_deleted_by_name_by_those_who_may_describe_it() -> None:
    acls = [allow(Op.DELETE, TOPIC, "*"), acl("deny", Op.DESCRIBE, TOPIC, "bananas")]
    states = [delete_topics.DeleteTopicState(name) for name in ("apples", "bananas")]
    asked = ask(delete_topics.DeleteTopicsRequest(states), 6, access_of(acls), deleted)
    assert {each.name: each.error_code for each in asked.answer.responses} == {"apples": 0, "bananas": REFUSED}


def test_a_client_that_may_do_all_with_the_cluster_deletes_each_topic() -> None:
    access = access_of([allow(Op.ALL, CLUSTER, "kafka-cluster"), acl("deny", Op.DESCRIBE, TOPIC, "*")])
    asked = ask(delete_topics.DeleteTopicsRequest(topic_names=["apples"]), 5, access, deleted)
    assert [each.error_code for each in asked.answer.responses] == [0]
    assert not asked.refused


def test_a_follower_that_may_not_follow_is_refused_each_topic() -> None:
    message = fetch_of("apples")
    message.replica_id = 1
    [topic] = ask(message, 12, access_of([allow(Op.READ, TOPIC, "*")])).answer.responses
    assert [each.error_code for each in topic.partitions] == [REFUSED]


def test_what_brokers_may_do_on_the_cluster_is_enough_for_their_requests() -> None:
    epochs = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[offset_for_leader_epoch.OffsetForLeaderTopic("apples")]
    )
    markers = write_txn_markers.WriteTxnMarkersRequest()
    asked = offset_for_leader_epoch.OffsetForLeaderEpochResponse()
    done = write_txn_markers.WriteTxnMarkersResponse()
    follows, alters = (allow(each, CLUSTER, "kafka-cluster") for each in (Op.CLUSTER_ACTION, Op.ALTER))
    assert ask(epochs, 4, access_of([follows]), lambda _: asked).answer is asked
    assert ask(epochs, 4, access_of([allow(Op.DESCRIBE, TOPIC, "apples")]), lambda _: asked).answer is asked
    assert ask(epochs, 4, access_of([])).refused == {("DESCRIBE", "TOPIC", "apples")}
    assert ask(markers, 1, access_of([follows]), lambda _: done).answer is done
    assert ask(markers, 1, access_of([alters]), lambda _: done).answer is done
    assert ask(markers, 1, access_of([])).refused == {("CLUSTER_ACTION", "CLUSTER", "kafka-cluster")}


def test_a_missing_topic_has_authorized_operations_too() -> None:
    wanted = [metadata.MetadataRequestTopic(NO_UUID, name) for name in ("missing-1", "secret")]
    message = metadata.MetadataRequest(
        wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    asked = ask(message, 12, access_of([allow(Op.READ, TOPIC, "missing-1")]), as_asked)
    told = {each.name: each.topic_authorized_operations for each in asked.answer.topics}
    assert told == {
        "missing-1": Op.READ.bit | Op.DESCRIBE.bit,
        "secret": metadata.MetadataResponseTopic().topic_authorized_operations,
    }


def test_groups_are_listed_that_a_client_may_describe() -> None:
    def listed(_: Any) -> list_groups.ListGroupsResponse:
        return list_groups.ListGroupsResponse(groups=[list_groups.ListedGroup(name, "") for name in ("mine", "other")])

    def seen(*acls: Acl) -> list[str]:
        answer = ask(list_groups.ListGroupsRequest(), 4, access_of(acls), listed).answer
        return [each.group_id for each in answer.groups]

    assert seen(allow(Op.READ, GROUP, "mine")) == ["mine"]
    assert seen(allow(Op.DESCRIBE, CLUSTER, "kafka-cluster")) == ["mine", "other"]


def test_a_group_with_a_hidden_topic_is_not_described() -> None:
    shapes = consumer_group_describe

    def described(message: shapes.ConsumerGroupDescribeRequest) -> shapes.ConsumerGroupDescribeResponse:
        assignment = shapes.Assignment([shapes.TopicPartitions(topic_id("bananas"), "bananas", [0])])
        member = shapes.Member("m", assignment=assignment, target_assignment=shapes.Assignment())
        return shapes.ConsumerGroupDescribeResponse(
            groups=[shapes.DescribedGroup(0, None, name, members=[member]) for name in message.group_ids]
        )

    def told(*acls: Acl) -> dict[str, tuple[int, int]]:
        message = shapes.ConsumerGroupDescribeRequest(["mine", "other"])
        answer = ask(message, 1, access_of(acls), described).answer
        return {each.group_id: (each.error_code, len(each.members)) for each in answer.groups}

    other = (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
    assert told(allow(Op.READ, GROUP, "mine")) == {"mine": (REFUSED, 0), "other": other}
    assert told(allow(Op.READ, GROUP, "mine"), allow(Op.READ, TOPIC, "*")) == {"mine": (0, 1), "other": other}


def test_offsets_of_all_topics_are_those_of_the_topics_that_a_client_may_describe() -> None:
    def offsets(message: offset_fetch.OffsetFetchRequest) -> offset_fetch.OffsetFetchResponse:
        topics = [offset_fetch.OffsetFetchResponseTopics(name) for name in NAMES]
        return offset_fetch.OffsetFetchResponse(
            groups=[offset_fetch.OffsetFetchResponseGroup(each.group_id, list(topics)) for each in message.groups]
        )

    groups = [offset_fetch.OffsetFetchRequestGroup(name, topics=None) for name in ("mine", "other")]
    acls = [allow(Op.READ, GROUP, "mine"), allow(Op.READ, TOPIC, "bananas")]
    asked = ask(offset_fetch.OffsetFetchRequest(groups=groups), 9, access_of(acls), offsets)
    assert {each.group_id: ([t.name for t in each.topics], each.error_code) for each in asked.answer.groups} == {
        "mine": (["bananas"], 0),
        "other": ([], ErrorCode.GROUP_AUTHORIZATION_FAILED),
    }
