"""The mesh as one cluster: who is asked about which topic, and what clients see."""

import pytest

from mesh.validation import Policy, Rule
from services.gateway.requests.mesh import metadata
from services.gateway.requests.plan import Gather, Lane, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import CreateTopicsRequest, CreateTopicsResponse, MetadataRequest, MetadataResponse
from services.gateway.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.gateway.requests.playbook import Playbook, World


def told(*topics: str, error: int = 0, leader: int = 7) -> MetadataResponse:
    """A real cluster's answer, full of things that clients must not see."""
    partition = MetadataResponsePartition(0, 0, leader, 5, [7, 8], [7, 8], [8])
    return MetadataResponse(
        brokers=[MetadataResponseBroker(7, "real", 9092, "rack")],
        cluster_id="real",
        controller_id=7,
        topics=[MetadataResponseTopic(error, name, b"i" * 16, False, [] if error else [partition]) for name in topics],
    )


def ask(world: World, *names: str, version: int = 9, create: bool = False) -> Playbook:
    message = MetadataRequest([MetadataRequestTopic(name=name) for name in names], create)
    return Playbook(metadata.handle, message, version, world.view())


def test_named_topics_are_asked_of_their_owners_alone() -> None:
    book = ask(World({"c1": ["apples"], "c2": ["bananas"]}), "bananas", "apples", "cherries")
    asked = {call.cluster: call.message for call in book.asked()}
    assert {c: [t.name for t in m.topics or []] for c, m in asked.items() if isinstance(m, MetadataRequest)} == {
        "c1": ["apples"],
        "c2": ["bananas"],
    }
    book.answered(told("bananas"), told("apples"))
    assert [(t.name, t.error_code) for t in book.answer.topics] == [("bananas", 0), ("apples", 0), ("cherries", 3)]


def test_clients_see_virtual_nodes_and_no_epochs() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]}, by_node_id=True)
    book = ask(world, "bananas")
    book.answered(told("bananas"))
    answer = book.answer
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(101, "mesh", 19092), (102, "mesh", 19092)]
    assert (answer.cluster_id, answer.controller_id) == ("mesh-id", 101)
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (102, -1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([102], [102], [])


def test_a_partition_without_leader_stays_without() -> None:
    book = ask(World({"c1": ["apples"]}), "apples")
    book.answered(told("apples", leader=-1))
    assert book.answer.topics[0].partitions[0].leader_id == -1


@pytest.mark.parametrize("version", [0, 1, 13])
def test_all_topics_come_from_the_clusters_that_own_them(version: int) -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    message = MetadataRequest([] if version == 0 else None, allow_auto_topic_creation=True)
    book = Playbook(metadata.handle, message, version, world.view())
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    for call in book.asked():
        assert isinstance(call.message, MetadataRequest)
        assert not call.message.allow_auto_topic_creation
    book.answered(told("apples", "bananas", "strange", "__consumer_offsets"), told("bananas", "apples"))
    assert [t.name for t in book.answer.topics] == ["apples", "bananas"]


def test_no_topics_means_just_the_nodes() -> None:
    book = ask(World({"c1": ["apples"]}))
    assert book.answer.topics == []
    assert len(book.answer.brokers) == 1


def test_all_topics_shows_those_of_a_cluster_that_is_down_as_they_were_seen_last() -> None:
    """Consumers that subscribe by pattern would lose their partitions otherwise, and the group would rebalance."""
    world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=3)
    world.clusters["c2"].down = "connection refused"
    book = Playbook(metadata.handle, MetadataRequest(None), 9, world.view())
    book.answered(told("apples"))
    assert [(t.name, t.error_code, len(t.partitions)) for t in book.answer.topics] == [
        ("apples", 0, 1),
        ("bananas", 0, 3),
    ]


def test_all_topics_shows_those_of_a_cluster_that_fails_just_now() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    book = Playbook(metadata.handle, MetadataRequest(None), 9, world.view())
    book.answered(told("apples"), Unreachable("c2", "lost"))
    assert [t.name for t in book.answer.topics] == ["apples", "bananas"]


def test_all_topics_shows_no_copy_that_a_moved_topic_has_left_behind_on_a_cluster_that_is_down() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.move("bananas", "c1")
    world.clusters["c2"].down = "connection refused"
    book = Playbook(metadata.handle, MetadataRequest(None), 9, world.view())
    book.answered(told("apples"))
    assert [t.name for t in book.answer.topics] == ["apples"]


def test_a_topic_of_an_unreachable_cluster_is_shown_as_it_was_seen_last() -> None:
    book = ask(World({"c1": ["apples"]}, partitions=3), "apples")
    book.all_unreachable()
    (topic,) = book.answer.topics
    assert (topic.error_code, [p.leader_id for p in topic.partitions]) == (0, [101, 101, 101])


@pytest.mark.parametrize("create", [True, False])
def test_a_topic_that_moved_to_an_unreachable_cluster_is_shown_as_where_it_lived_before(create: bool) -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=3)
    world.move("apples", "c2")
    del world.clusters["c2"].topics["apples"]
    book = ask(world, "apples", create=create)
    assert [call.cluster for call in book.asked()] == ["c2"]
    book.all_unreachable()
    (topic,) = book.answer.topics
    assert (topic.error_code, [p.leader_id for p in topic.partitions]) == (0, [101, 101, 101])


@pytest.mark.parametrize("create", [True, False])
def test_a_topic_that_was_never_seen_is_to_be_asked_for_again(create: bool) -> None:
    world = World({"c1": ["apple*"]})
    world.clusters["c1"].down = "connection refused"
    book = ask(world, "apples", create=create)
    book.answered(Unreachable("c1", "down"))
    if create:
        assert isinstance(book.gathers(), Gather)  # a pause
        book.answered()
    expected = ErrorCode.LEADER_NOT_AVAILABLE if create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert book.answer.topics[0].error_code == expected


def test_a_missing_topic_is_created_by_its_owner_only_if_the_client_allows_it() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    book = ask(world, "apples", "bananas", create=True)
    book.answered(told("apples", error=3), told("bananas"))
    (again,) = book.asked()
    assert again.cluster == "c1"
    assert isinstance(again.message, MetadataRequest)
    assert again.message.allow_auto_topic_creation
    book.answered(told("apples"))
    assert [t.error_code for t in book.answer.topics] == [0, 0]


def test_a_missing_topic_stays_missing_if_the_client_does_not_allow_creation() -> None:
    book = ask(World({"c1": ["apples"]}), "apples")
    book.answered(told("apples", error=3))
    assert book.answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_missing_topic_whose_name_the_policy_refuses_is_not_created() -> None:
    world = World({"c1": ["apples", "pears"]})
    world.memory.new_topics = Policy([Rule("names", "apples", new_name_regex="a")])
    book = ask(world, "apples", "pears", create=True)
    book.answered(told("apples", "pears", error=3))
    (again,) = book.asked()
    assert isinstance(again.message, MetadataRequest)
    assert [topic.name for topic in again.message.topics or ()] == ["pears"]
    book.answered(told("pears"))
    assert [t.error_code for t in book.answer.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    there = ask(world, "apples", create=True)
    there.answered(told("apples"))
    assert there.answer.topics[0].error_code == 0, "the policy is about new topics"


def test_creation_uses_the_partition_count_of_the_cluster() -> None:
    world = World({"c1": ["apples"]}, partition_count=12)
    book = ask(world, "apples", create=True)
    book.answered(told("apples", error=3))
    (call,) = book.asked()
    assert isinstance(call.message, CreateTopicsRequest)
    assert [(t.name, t.num_partitions) for t in call.message.topics] == [("apples", 12)]
    assert call.lane is Lane.CLIENT, "a creation takes seconds, and others must not wait behind it"
    book.answered(CreateTopicsResponse())
    book.answered(told("apples"))
    assert book.answer.topics[0].error_code == 0


def by_id(world: World, *ids: bytes) -> Playbook:
    message = MetadataRequest([MetadataRequestTopic(topic_id, None) for topic_id in ids], True)
    return Playbook(metadata.handle, message, 12, world.view())


def test_ids_are_the_meshs_own_in_questions_and_answers() -> None:
    apples = mesh_topic_id("mesh-id", "apples")
    book = by_id(World({"c1": ["apples"]}), apples)
    book.answered(told("apples"))
    assert [(t.name, t.topic_id, t.error_code) for t in book.answer.topics] == [("apples", apples, 0)]


def test_an_id_that_nobody_knows_is_told_once_all_clusters_were_asked() -> None:
    world = World({"c1": ["apples"], "c2": []})
    book = by_id(world, mesh_topic_id("mesh-id", "apples"), b"?" * 16)
    assert [(call.cluster, getattr(call.message, "topics", [])) for call in book.asked()] == [
        ("c1", None),
        ("c2", None),
    ]
    book.answered(MetadataResponse(), MetadataResponse())
    book.answered(told("apples"))
    assert {(t.name, t.error_code) for t in book.answer.topics} == {("apples", 0), (None, 100)}


def test_an_id_creates_no_topic_and_has_no_name_once_its_topic_is_gone() -> None:
    apples = mesh_topic_id("mesh-id", "apples")
    book = by_id(World({"c1": ["apples"]}), apples)
    book.answered(told("apples", error=3))
    assert [(t.name, t.topic_id, t.error_code) for t in book.answer.topics] == [(None, apples, 100)]


def test_before_version_12_no_broker_takes_ids() -> None:
    message = MetadataRequest([MetadataRequestTopic(mesh_topic_id("mesh-id", "apples"), None)], False)
    book = Playbook(metadata.handle, message, 11, World({"c1": ["apples"]}).view())
    assert [t.error_code for t in book.answer.topics] == [ErrorCode.INVALID_REQUEST]
