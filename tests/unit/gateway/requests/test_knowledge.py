"""What is known of a cluster changes its edition when something may be otherwise, and at no other time."""

from services.gateway.requests.knowledge import ClusterKnowledge, TopicKnowledge
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import MetadataResponse
from services.gateway.wire.messages.metadata import MetadataResponseTopic


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
