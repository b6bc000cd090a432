"""Requests of old clients: what reaches the clusters in their place, and the old form of the answers."""

import pytest

from mesh.compression import Codec
from mesh.validation import Policy, Rule
from services.gateway.requests.conversions import NotConverted
from services.gateway.requests.older import admin, fetch, offsets, produce
from services.gateway.requests.older.rewriting import known_code
from services.gateway.requests.plan import Call, Close, NoAnswer, RawResponse, Sent, Unreachable, Verbatim
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode, encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_request_header, parse_response_header
from services.gateway.wire.legacy.conversion import batches_of
from services.gateway.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.create_topics import CreatableTopic, CreatableTopicResult
from services.gateway.wire.messages.delete_topics import DeletableTopicResult
from services.gateway.wire.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from services.gateway.wire.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from services.gateway.wire.messages.offset_fetch import (
    OffsetFetchRequestTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.fetching import asked, data, positions
from tests.unit.gateway.requests.records.fetching import raw as fetched
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1
from tests.unit.gateway.wire.records import batch


def batch_of(message_set: bytes) -> bytes:
    (found,) = batches_of((message_set,))
    assert isinstance(found, bytes)
    return found


OLD, NEW = MAGIC_0[Codec.GZIP], batch_of(MAGIC_0[Codec.GZIP])
DAMAGED = OLD[:-1] + b"x"
NO_ROOM = NotConverted("no room")


# --- Produce -----------------------------------------------------------------------------------------------------


def producing(
    *places: tuple[str, bytes], acks: int = 1, version: int = 0, room: bool = True, policy: Policy | None = None
) -> Playbook:
    """The request of an old client, partition 0 of each topic."""
    message = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(t, partition_data=[PartitionProduceData(0, r)]) for t, r in places],
    )
    world = World({"c1": ["apples", "cherries"], "c2": ["bananas"]})
    world.memory.validation = policy or Policy()
    return Playbook(produce.handle, message, version, world.view(), not_converted=None if room else NO_ROOM)


def sent(call: Call) -> list[tuple[str, bytes]]:
    if isinstance(call.message, Verbatim):
        frame = call.message.frame
        header = parse_request_header(frame, SIZE_BYTES, len(frame))
        assert header.api_version == call.version
        message = decode(ProduceRequest, call.version, frame, header.body_offset)
    else:
        message = decode(ProduceRequest, call.version, b"".join(call.message.pieces))  # type: ignore[union-attr]
    return [(t.name, bytes(p.records or b"")) for t in message.topic_data for p in t.partition_data]


def written(topic: str, error: int = 0, append_time: int = -1) -> RawResponse:
    result = PartitionProduceResponse(0, error, -1 if error else 7, append_time)
    message = ProduceResponse([TopicProduceResponse(topic, partition_responses=[result])], throttle_time_ms=3)
    frame = memoryview(bytearray(encode_response(message, 3, 9)))
    return RawResponse(frame, parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.PRODUCE, 3).body_offset, 3)


def results(book: Playbook, version: int = 0) -> list[tuple[str, int, int]]:
    encode(book.answer, version)  # the client's version can carry it
    return [(t.name, p.error_code, p.base_offset) for t in book.answer.responses for p in t.partition_responses]


def test_message_sets_reach_each_cluster_as_batches() -> None:
    book = producing(("bananas", OLD), ("apples", OLD))
    bananas, apples = book.asked()
    assert (bananas.cluster, bananas.version, apples.cluster) == ("c2", produce.VERSION, "c1")
    assert (sent(bananas), sent(apples)) == ([("bananas", NEW)], [("apples", NEW)])
    book.answered(written("bananas"), written("apples", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert results(book) == [("bananas", 0, 7), ("apples", 6, -1)]


def test_a_request_for_one_leader_keeps_the_brokers_time() -> None:
    book = producing(("apples", MAGIC_1[Codec.NONE]), version=2)
    book.answered(written("apples", append_time=1234))
    assert results(book, 2) == [("apples", 0, 7)]
    assert book.answer.responses[0].partition_responses[0].log_append_time_ms == 1234
    assert book.answer.throttle_time_ms == 3


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), (0, -1)])
def test_a_rule_may_keep_old_message_formats_out(version: int, code: int) -> None:
    policy = Policy([Rule("new", "apples", message_format_v2=True)])
    book = producing(("apples", MAGIC_1[Codec.NONE]), ("bananas", OLD), version=version, policy=policy)
    (call,) = book.asked()
    assert call.cluster == "c2"
    book.answered(written("bananas"))
    assert results(book, version) == [("apples", code, -1), ("bananas", 0, 7)]


def test_a_damaged_set_is_refused_and_the_others_go_on() -> None:
    book = producing(("apples", OLD), ("cherries", DAMAGED), ("bananas", b""))
    (call,) = book.asked()
    assert sent(call) == [("apples", NEW)]
    book.answered(written("apples"))
    assert results(book) == [("apples", 0, 7), ("cherries", ErrorCode.CORRUPT_MESSAGE, -1), ("bananas", 0, -1)]


def test_nothing_is_sent_if_nothing_could_be_converted() -> None:
    assert results(producing(("apples", DAMAGED))) == [("apples", ErrorCode.CORRUPT_MESSAGE, -1)]
    crowded = producing(("apples", OLD), room=False)
    assert results(crowded) == [("apples", ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)], "to be tried again"


def test_without_acks_there_is_no_answer_or_no_connection() -> None:
    book = producing(("apples", OLD), acks=0)
    (call,) = book.asked()
    assert call.no_answer
    book.answered(Sent())
    assert book.answer == NoAnswer()
    damaged = producing(("apples", OLD), ("bananas", DAMAGED), acks=0)
    damaged.answered(Sent())
    assert isinstance(damaged.answer, Close) and "bananas" in damaged.answer.reason
    lost = producing(("apples", OLD), acks=0)
    lost.answered(Unreachable("c1", "down"))
    assert isinstance(lost.answer, Close)


@pytest.mark.parametrize(
    ("error", "by_version"),
    [
        (ErrorCode.CORRUPT_MESSAGE, (2, 2, 2)),
        (ErrorCode.KAFKA_STORAGE_ERROR, (6, 6, 6)),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, (-1, 29, 29)),
        (ErrorCode.INVALID_TIMESTAMP, (-1, -1, 32)),
        (ErrorCode.INVALID_RECORD, (-1, -1, -1)),
    ],
)
def test_no_client_hears_of_an_error_that_it_does_not_know(error: int, by_version: tuple[int, int, int]) -> None:
    assert tuple(known_code(error, version) for version in range(3)) == by_version


# --- Fetch -------------------------------------------------------------------------------------------------------


def fetching(*topics: str, version: int = 1, max_bytes: int = 1 << 20, room: bool = True) -> Playbook:
    message = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes if version >= 3 else 0x7FFF_FFFF,
        topics=[
            FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=42, partition_max_bytes=1 << 20)])
            for topic in topics
        ],
    )
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    return Playbook(fetch.handle, message, version, world.view(), not_converted=None if room else NO_ROOM)


def at_42(records: bytes) -> bytes:
    """As a broker keeps it."""
    return (42).to_bytes(8, "big") + records[8:]


def given(book: Playbook, version: int) -> list[tuple[str, int, int, bytes]]:
    encode(book.answer, version)
    return [
        (t.topic, p.error_code, p.high_watermark, bytes(p.records)) for t in book.answer.responses for p in t.partitions
    ]


@pytest.mark.parametrize(("version", "old"), [(0, MAGIC_0), (1, MAGIC_0), (2, MAGIC_1), (3, MAGIC_1)])
def test_batches_become_messages_of_the_clients_magic(version: int, old: dict[Codec, bytes]) -> None:
    book = fetching("apples", version=version)
    (call,) = book.gathers().calls
    question = asked(call)
    assert call.version == fetch.VERSION
    assert (question.session_epoch, question.isolation_level, question.max_bytes <= fetch.MAX_BYTES) == (-1, 0, True)
    book.answered(fetched(data("apples", at_42(batch_of(old[Codec.NONE]))), version=fetch.VERSION))
    ((topic, error, end, messages),) = given(book, version)
    assert (topic, error, end) == ("apples", 0, 50)
    first = int.from_bytes(messages[:8], "big")
    assert (first, messages[8:]) == (42, renumbered(old[Codec.NONE])[8:])


def renumbered(messages: bytes) -> bytes:
    """Three plain messages with offsets from 42."""
    out, at = bytearray(messages), 0
    for offset in (42, 43, 44):
        out[at : at + 8] = offset.to_bytes(8, "big")
        at += 12 + int.from_bytes(out[at + 8 : at + 12], "big")
    return bytes(out)


def test_answers_of_two_clusters_and_their_errors_are_one() -> None:
    book = fetching("bananas", "apples", "nowhere")
    book.answered(
        fetched(data("bananas", error=ErrorCode.OFFSET_OUT_OF_RANGE), version=fetch.VERSION),
        fetched(data("apples", at_42(NEW)), version=fetch.VERSION),
    )
    (bananas, apples, nowhere) = given(book, 1)
    assert (bananas[1], bananas[3], nowhere[1], apples[1]) == (1, b"", 3, 0)
    assert apples[3]


def test_the_gateway_reads_on_behind_what_an_old_client_cannot_see() -> None:
    book = fetching("apples")
    marker = batch(base_offset=42, attributes=0x20)
    book.answered(fetched(data("apples", bytes(marker)), version=fetch.VERSION))
    (call,) = book.gathers().calls
    assert positions(call) == {"apples": 43}
    book.answered(fetched(data("apples", bytes(batch(base_offset=43, attributes=0x20))), version=fetch.VERSION))
    book.answered(fetched(data("apples"), version=fetch.VERSION))
    assert given(book, 1) == [("apples", 0, 50, b"")]


def test_damaged_records_of_a_broker_are_said_to_be_corrupt() -> None:
    book = fetching("apples")
    book.answered(fetched(data("apples", at_42(NEW)[:-1] + b"x"), version=fetch.VERSION))
    assert given(book, 1) == [("apples", ErrorCode.CORRUPT_MESSAGE, 50, b"")]


def test_who_could_not_be_served_this_time_asks_again() -> None:
    book = fetching("apples", room=False)
    book.answered(fetched(data("apples", at_42(NEW)), version=fetch.VERSION))
    assert given(book, 1) == [("apples", 0, 50, b"")]


# --- offsets -----------------------------------------------------------------------------------------------------


def listing(*times: int) -> Playbook:
    partitions = [ListOffsetsPartition(0, timestamp=time, max_num_offsets=1) for time in times]
    topics = [ListOffsetsTopic(topic, [p]) for topic, p in zip(("apples", "bananas"), partitions, strict=False)]
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    return Playbook(offsets.handle_list_offsets, ListOffsetsRequest(-1, topics=topics), 0, world.view())


def listed(topic: str, offset: int, error: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(0, error, timestamp=5, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic, [found])])


def old_offsets(book: Playbook) -> list[tuple[int, list[int]]]:
    encode(book.answer, 0)
    return [(p.error_code, p.old_style_offsets) for t in book.answer.topics for p in t.partitions]


def test_one_offset_is_listed_for_each_time() -> None:
    book = listing(-1, -2)
    latest, earliest = book.asked()
    assert (latest.version, latest.cluster, earliest.cluster) == (1, "c1", "c2")
    book.answered(listed("apples", 10), listed("bananas", -1, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert old_offsets(book) == [(0, [10]), (6, [])]


def test_a_time_after_all_records_belongs_to_the_end_of_the_log() -> None:
    book = listing(1000, 1000)
    book.answered(listed("apples", 3), listed("bananas", -1))
    (call,) = book.asked()
    assert isinstance(call.message, ListOffsetsRequest)
    assert (call.cluster, call.message.topics[0].partitions[0].timestamp) == ("c2", -1)
    book.answered(listed("bananas", 20))
    assert old_offsets(book) == [(0, [3]), (0, [20])]


def committing(version: int, message: OffsetCommitRequest) -> Playbook:
    partition = OffsetCommitRequestPartition(0, committed_offset=5, committed_metadata="m")
    if version == 1:
        partition.commit_timestamp = 1234
    message.topics = [OffsetCommitRequestTopic("apples", partitions=[partition])]
    return Playbook(offsets.handle_offset_commit, message, version, World({"c1": ["apples"]}).view())


def test_a_commit_of_version_0_has_no_member() -> None:
    book = committing(0, OffsetCommitRequest("g"))
    (call,) = book.asked()
    assert isinstance(call.message, OffsetCommitRequest)
    assert (call.message.generation_id_or_member_epoch, call.message.member_id) == (-1, "")
    assert call.message.topics[0].partitions[0].committed_offset == 5
    encode(call.message, call.version)
    committed = [OffsetCommitResponsePartition(0, 0)]
    book.answered(OffsetCommitResponse(topics=[OffsetCommitResponseTopic("apples", partitions=committed)]))
    encode(book.answer, 0)
    assert book.answer.topics[0].partitions[0].error_code == 0


def test_a_commit_of_version_1_keeps_its_member_and_loses_its_time() -> None:
    book = committing(1, OffsetCommitRequest("g", 3, "me"))
    (question,) = book.asked()  # where the group lives
    book.all_unreachable()
    assert question.cluster == "c1"
    encode(book.answer, 1)


def fetching_offsets(*answers: tuple[int, int]) -> Playbook:
    wanted = [OffsetFetchRequestTopic("apples", list(range(len(answers))))]
    book = Playbook(offsets.handle_offset_fetch, OffsetFetchRequest("g", wanted), 0, World({"c1": ["apples"]}).view())
    (call,) = book.asked()
    partitions = [
        OffsetFetchResponsePartition(i, offset, metadata="", error_code=error)
        for i, (offset, error) in enumerate(answers)
    ]
    told = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("apples", partitions)])
    encode(told, 1)
    book.answered(told if call.version < 8 else OffsetFetchResponse())
    return book


def test_what_was_never_committed_is_unknown_to_clients_of_zookeeper() -> None:
    book = fetching_offsets((5, 0), (-1, 0))
    encode(book.answer, 0)
    found = [(p.committed_offset, p.error_code) for t in book.answer.topics for p in t.partitions]
    assert found == [(5, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


# --- administration ----------------------------------------------------------------------------------------------


def administrating(handle: object, message: Struct, version: int) -> Playbook:
    return Playbook(handle, message, version, World({"c1": ["apples"]}).view())  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_created_for_old_clients(version: int) -> None:
    wanted = CreateTopicsRequest([CreatableTopic("apples", 3, 1), CreatableTopic("nowhere", 3, 1)], 1000)
    book = administrating(admin.handle_create_topics, wanted, version)
    (call,) = book.asked()
    assert call.version >= 2
    book.answered(CreateTopicsResponse(topics=[CreatableTopicResult("apples")]))
    told = decode(CreateTopicsResponse, version, encode(book.answer, version))
    assert [(t.name, t.error_code) for t in told.topics] == [("apples", 0), ("nowhere", 17)]


def test_topics_are_deleted_for_old_clients() -> None:
    book = administrating(admin.handle_delete_topics, DeleteTopicsRequest(topic_names=["apples", "nowhere"]), 0)
    (call,) = book.asked()
    assert call.version >= 1
    book.answered(DeleteTopicsResponse(responses=[DeletableTopicResult("apples")]))
    told = decode(DeleteTopicsResponse, 0, encode(book.answer, 0))
    assert [(t.name, t.error_code) for t in told.responses] == [("apples", 0), ("nowhere", 3)]


def test_old_clients_are_told_which_settings_are_the_default() -> None:
    book = administrating(
        admin.handle_describe_configs, DescribeConfigsRequest([DescribeConfigsResource(2, "apples")]), 0
    )
    settings = [
        DescribeConfigsResourceResult("retention.ms", "5", config_source=1),
        DescribeConfigsResourceResult("cleanup.policy", "delete", config_source=5),
    ]
    book.answered(DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 2, "apples", settings)]))
    told = decode(DescribeConfigsResponse, 0, encode(book.answer, 0))
    assert [(c.name, c.is_default) for c in told.results[0].configs] == [
        ("retention.ms", False),
        ("cleanup.policy", True),
    ]
