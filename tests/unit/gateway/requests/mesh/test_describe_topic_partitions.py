"""DescribeTopicPartitions: the topics of the mesh, page by page."""

from services.gateway.requests.mesh import describe_topic_partitions
from services.gateway.requests.plan import Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.messages import DescribeTopicPartitionsRequest, MetadataRequest, MetadataResponse
from services.gateway.wire.messages.describe_topic_partitions import Cursor, TopicRequest
from services.gateway.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.unit.gateway.requests.playbook import Playbook, World


def world() -> World:
    return World({"c1": ["apples", "cherries"], "c2": ["bananas"]}, partitions=3, by_node_id=True)


def told(*topics: str, error: int = 0) -> MetadataResponse:
    """A real cluster's answer: three partitions each, the last without a leader."""
    partitions = [MetadataResponsePartition(0, n, 7 if n < 2 else -1, 5, [7, 8], [7], [8]) for n in range(3)]
    return MetadataResponse(
        topics=[MetadataResponseTopic(error, t, b"c" * 16, False, [] if error else partitions, 8) for t in topics]
    )


def ask(*topics: str, limit: int = 2000, cursor: Cursor | None = None) -> Playbook:
    message = DescribeTopicPartitionsRequest([TopicRequest(topic) for topic in topics], limit, cursor)
    return Playbook(describe_topic_partitions.handle, message, 0, world().view())


def seen(book: Playbook) -> list[tuple[str, list[int]]]:
    return [(topic.name, [p.partition_index for p in topic.partitions]) for topic in book.answer.topics]


def test_named_topics_come_from_their_owners_in_the_order_of_names() -> None:
    book = ask("cherries", "bananas", "nowhere")
    for call in book.asked():
        assert isinstance(call.message, MetadataRequest)
        assert not call.message.allow_auto_topic_creation
    book.answered(told("bananas"), told("cherries"))
    assert seen(book) == [("bananas", [0, 1, 2]), ("cherries", [0, 1, 2]), ("nowhere", [])]
    bananas, _, nowhere = book.answer.topics
    assert (bananas.topic_id, bananas.topic_authorized_operations) == (mesh_topic_id("mesh-id", "bananas"), 8)
    assert [(p.leader_id, p.leader_epoch, p.replica_nodes) for p in bananas.partitions] == [
        (102, -1, [102]),
        (102, -1, [102]),
        (-1, -1, [102]),
    ]
    assert (nowhere.error_code, book.answer.next_cursor) == (3, None)


def test_what_is_not_known_of_replicas_is_empty_and_not_null() -> None:
    """The Java admin client, and with it every tool that describes topics, fails on null."""
    book = ask("apples")
    book.answered(told("apples"))
    for partition in book.answer.topics[0].partitions:
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_all_topics_come_from_all_clusters_without_internal_ones() -> None:
    book = ask()
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    book.answered(told("cherries", "apples", "__consumer_offsets"), told("bananas", "apples"))
    assert [name for name, _ in seen(book)] == ["apples", "bananas", "cherries"]


def test_pages_follow_each_other_without_gap_and_without_repeating() -> None:
    pages = []
    cursor = None
    while True:
        book = ask(limit=4, cursor=cursor)
        book.answered(told("cherries", "apples"), told("bananas"))
        pages.append(seen(book))
        cursor = book.answer.next_cursor
        if cursor is None:
            break
    assert pages == [
        [("apples", [0, 1, 2]), ("bananas", [0])],
        [("bananas", [1, 2]), ("cherries", [0, 1])],
        [("cherries", [2])],
    ]


def test_a_page_of_named_topics_begins_at_the_cursor() -> None:
    book = ask("apples", "bananas", cursor=Cursor("bananas", 1))
    assert [call.cluster for call in book.asked()] == ["c2"], "what is behind the cursor is not asked for again"
    book.answered(told("bananas"))
    assert seen(book) == [("bananas", [1, 2])]


def test_a_cluster_that_is_away_shows_its_topics_as_seen_last() -> None:
    book = ask("apples")
    book.answered(Unreachable("c1", "down"))
    assert seen(book) == [("apples", [0, 1, 2])]


def test_a_cursor_before_the_first_partition_is_refused() -> None:
    book = ask("apples", cursor=Cursor("apples", -1))
    assert [(topic.name, topic.error_code) for topic in book.answer.topics] == [("apples", 42)]
