"""What is known of a cluster changes its edition when something may be otherwise, and at no other time."""

from services.gateway.requests.knowledge import ClusterKnowledge, TopicKnowledge
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import MetadataResponse
from services.gateway.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


def without(topic: str) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)])


def test_a_topic_that_is_looked_for_in_vain_changes_nothing_for_the_others() -> None:
    """Gateways look for `mesh.transactions` on each cluster every few seconds."""
    knowledge = ClusterKnowledge("c1")
    knowledge.topics["apples"] = TopicKnowledge("apples", bytes(16), (1,))
    before = knowledge.leaders_edition
    knowledge.learn(without("mesh.transactions"))
    assert knowledge.leaders_edition == before
    knowledge.learn(without("apples"))
    assert knowledge.leaders_edition != before


def test_an_answer_that_has_no_ids_leaves_a_topic_that_is_as_it_was() -> None:
    """Metadata has ids from version 10 on."""
    knowledge = ClusterKnowledge("c1")
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1])
    knowledge.learn(MetadataResponse(topics=[MetadataResponseTopic(0, "apples", b"a" * 16, partitions=[partition])]))
    known, edition = knowledge.topics["apples"], knowledge.leaders_edition
    knowledge.learn(MetadataResponse(topics=[MetadataResponseTopic(0, "apples", partitions=[partition])]))
    assert knowledge.topics["apples"] is known
    assert knowledge.leaders_edition == edition
    assert knowledge.topic_names == {b"a" * 16: "apples"}
