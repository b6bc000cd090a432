"""The scanners agree with the codec on every message, and what they cut out is whole."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from services.gateway.wire.batches import MOST_COUNTED, count_records
from services.gateway.wire.codec import decode, encode
from services.gateway.wire.messages import FetchRequest, FetchResponse, ProduceRequest
from services.gateway.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.primitives import INT32, WireError
from services.gateway.wire.scanner import (
    Entries,
    cut_entry,
    join_fetch_response,
    own_entry,
    split_produce,
)
from services.gateway.wire.scanner.fetch_join import by_topic
from services.gateway.wire.schema import NO_UUID
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.wire.both_walks import Walks, both
from tests.unit.gateway.wire.records import batch
from tests.unit.gateway.wire.strategies import structs

some = settings(max_examples=12 * REPEAT, deadline=None, suppress_health_check=list(HealthCheck))
PAD = b"shared"


@both
@pytest.mark.parametrize("version", range(14))
@some
@given(data=st.data())
def test_a_produce_scan_sees_what_the_codec_sees(walks: Walks, version: int, data: st.DataObject) -> None:
    request = data.draw(structs(ProduceRequest, version, unknown_tags=version >= 9))
    body = encode(request, version)
    buffer = PAD + body + PAD
    scan = walks.scan_produce(buffer, version, len(PAD), len(PAD) + len(body))

    assert (scan.transactional_id, scan.acks, scan.timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    assert [(topic.name, topic.topic_id) for topic in scan.topics] == [
        (topic.name, topic.topic_id) for topic in request.topic_data
    ]
    for seen, real in zip(scan.topics, request.topic_data, strict=True):
        found = [
            (part.partition, None if part.records_start < 0 else buffer[part.records_start : part.records_end])
            for part in seen.partitions
        ]
        assert found == [(part.index, part.records) for part in real.partition_data]


@both
@pytest.mark.parametrize("version", range(14))
@some
@given(data=st.data())
def test_parts_of_a_split_are_requests_of_their_own(walks: Walks, version: int, data: st.DataObject) -> None:
    request = data.draw(structs(ProduceRequest, version, unknown_tags=version >= 9))
    body = encode(request, version)
    scan = walks.scan_produce(body, version, 0, len(body))
    kept = [
        (topic, [part for part in topic.partitions if data.draw(st.booleans())])
        for topic in scan.topics
        if data.draw(st.booleans())
    ]
    part = b"".join(split_produce(body, scan, kept))

    wanted = {id(topic): [entry.partition for entry in entries] for topic, entries in kept}
    decoded = decode(ProduceRequest, version, part)
    assert [[entry.index for entry in topic.partition_data] for topic in decoded.topic_data] == list(wanted.values())
    assert decoded.unknown_tags == request.unknown_tags
    everything = [(topic, topic.partitions) for topic in scan.topics]
    assert b"".join(split_produce(body, scan, everything)) == body


@both
@pytest.mark.parametrize(("theirs", "ours"), [(13, 12), (13, 9), (13, 8), (12, 3), (3, 9), (8, 12), (5, 3)])
@some
@given(data=st.data())
def test_a_request_is_written_in_another_version_with_its_records_as_they_are(
    walks: Walks, theirs: int, ours: int, data: st.DataObject
) -> None:
    request = data.draw(structs(ProduceRequest, theirs))
    body = encode(request, theirs)
    scan = walks.scan_produce(body, theirs, 0, len(body))
    names = [f"topic-{place}" for place in range(len(scan.topics))] if theirs >= 13 else [t.name for t in scan.topics]
    parts = [(topic.named(name), topic.partitions) for topic, name in zip(scan.topics, names, strict=True)]
    written = decode(ProduceRequest, ours, b"".join(split_produce(body, scan, parts, ours)))

    for topic, name in zip(request.topic_data, names, strict=True):
        topic.name, topic.topic_id = name, NO_UUID
    assert written == request


@both
@pytest.mark.parametrize("version", range(19))
@some
@given(data=st.data())
def test_a_fetch_scan_sees_what_the_codec_sees(walks: Walks, version: int, data: st.DataObject) -> None:
    request = data.draw(structs(FetchRequest, version, unknown_tags=version >= 12))
    body = encode(request, version)
    buffer = PAD + body + PAD
    scan = walks.scan_fetch_request(buffer, version, len(PAD), len(PAD) + len(body))

    for name in ("max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch", "rack_id", "replica_id"):
        assert getattr(scan, name) == getattr(request, name), name
    assert scan.isolation_level == request.isolation_level % 256
    assert scan.forgotten_topics == len(request.forgotten_topics_data)
    assert [
        (
            topic.name,
            topic.topic_id,
            [(p.partition, p.fetch_offset, p.max_bytes, p.current_leader_epoch) for p in topic.partitions],
        )
        for topic in scan.topics
    ] == [
        (
            topic.topic,
            topic.topic_id,
            [(p.partition, p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch) for p in topic.partitions],
        )
        for topic in request.topics
    ]


@both
def test_waits_of_a_fetch_are_patched_in_place(walks: Walks) -> None:
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])
    buffer = bytearray(encode(request, 11))
    INT32.pack_into(buffer, walks.scan_fetch_request(buffer, 11, 0, len(buffer)).waits_at, 20)
    assert decode(FetchRequest, 11, buffer).max_wait_ms == 20


@both
@pytest.mark.parametrize("version", range(19))
@some
@given(data=st.data())
def test_a_fetch_response_scan_sees_what_the_codec_sees(walks: Walks, version: int, data: st.DataObject) -> None:
    response = data.draw(structs(FetchResponse, version, unknown_tags=version >= 12))
    body = encode(response, version)
    buffer = PAD + body + PAD
    scan = walks.scan_fetch_response(buffer, version, len(PAD), len(PAD) + len(body))

    assert (scan.throttle_time_ms, scan.error_code, scan.session_id) == (
        response.throttle_time_ms,
        response.error_code,
        response.session_id,
    )
    for seen, real in zip(scan.topics, response.responses, strict=True):
        assert (seen.name, seen.topic_id) == (real.topic, real.topic_id)
        for part, data_of in zip(seen.partitions, real.partitions, strict=True):
            assert (part.partition, part.error_code, part.high_watermark, part.preferred_read_replica) == (
                data_of.partition_index,
                data_of.error_code,
                data_of.high_watermark,
                data_of.preferred_read_replica,
            )
            records = None if part.records_start < 0 else buffer[part.records_start : part.records_end]
            assert records == data_of.records
    parts = [part for topic in response.responses for part in topic.partitions]
    assert scan.record_bytes == sum(len(part.records or b"") for part in parts)


FORMS = (4, 5, 7, 10, 11, 12, 13, 18)


@both
@pytest.mark.parametrize("ours", FORMS)
@some
@given(data=st.data())
def test_a_joined_answer_has_all_partitions_and_no_word_of_the_clusters_behind(
    walks: Walks, ours: int, data: st.DataObject
) -> None:
    versions = [data.draw(st.sampled_from([v for v in FORMS if (v < 13) == (ours < 13) or v == 12])) for _ in range(2)]
    answers = [data.draw(structs(FetchResponse, v, unknown_tags=v >= 12)) for v in versions]
    topics: list[Entries] = []
    for version, answer in zip(versions, answers, strict=True):
        body = encode(answer, version)
        for topic in walks.scan_fetch_response(body, version, 0, len(body)).topics:
            entries = [cut_entry(body, part, version, ours) for part in topic.partitions]
            topics.append(Entries(topic.name, topic.topic_id, entries))
    pieces = join_fetch_response(ours, topics, throttle_time_ms=9, session_id=6)
    joined = decode(FetchResponse, ours, b"".join(pieces))

    def plain(part: PartitionData) -> PartitionData:
        kept = ("partition_index", "error_code", "high_watermark", "last_stable_offset", "records")
        copied = PartitionData(**{name: getattr(part, name) for name in kept})
        copied.log_start_offset = part.log_start_offset if ours >= 5 else -1
        copied.aborted_transactions = part.aborted_transactions
        for aborted in copied.aborted_transactions or []:
            aborted.unknown_tags = {}
        return copied

    parts = [[plain(part) for part in topic.partitions] for answer in answers for topic in answer.responses]
    found = [topic.partitions for topic in joined.responses]
    for part in (part for topic in found for part in topic):
        for aborted in part.aborted_transactions or []:
            aborted.unknown_tags = {}
    assert found == parts
    assert (joined.throttle_time_ms, joined.session_id) == (9, 6 if ours >= 7 else 0)
    named = [(t.topic, NO_UUID) if ours < 13 else ("", t.topic_id) for answer in answers for t in answer.responses]
    assert [(topic.topic, topic.topic_id) for topic in joined.responses] == named


@pytest.mark.parametrize("version", FORMS)
def test_a_partition_of_our_own_has_no_records(version: int) -> None:
    entries = [own_entry(version, 3, 6), own_entry(version, 4, 0, 50, 49, 7)]
    topic_id = b"i" * 16 if version >= 13 else NO_UUID
    body = b"".join(join_fetch_response(version, [Entries("t", topic_id, entries)]))
    (topic,) = decode(FetchResponse, version, body).responses
    log_start = 7 if version >= 5 else -1
    assert topic.partitions == [
        PartitionData(3, 6, -1, -1, -1, records=b""),
        PartitionData(4, 0, 50, 49, log_start, records=b""),
    ]


def test_neighbours_of_one_topic_are_put_together_and_others_stay_in_their_order() -> None:
    entry = own_entry(12, 0)
    found = by_topic([("a", NO_UUID, entry), ("a", NO_UUID, entry), ("b", NO_UUID, entry), ("a", NO_UUID, entry)])
    assert [(topic.topic, len(topic.entries)) for topic in found] == [("a", 2), ("b", 1), ("a", 1)]


@both
def test_records_of_a_joined_answer_are_slices(walks: Walks) -> None:
    body = fetched(records=b"r" * 10_000)
    (topic,) = walks.scan_fetch_response(body, 12, 0, len(body)).topics
    for ours in (12, 18):
        pieces = join_fetch_response(ours, [Entries("t", NO_UUID, [cut_entry(body, topic.partitions[0], 12, ours)])])
        (large,) = [piece for piece in pieces if len(piece) > 5000]
        assert isinstance(large, memoryview)
        assert large.obj is body


def fetched(**changes: object) -> bytes:
    part = PartitionData(records=b"12345", aborted_transactions=[AbortedTransaction(1, 2)])
    for name, value in changes.items():
        setattr(part, name, value)
    return encode(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])]), 12)


@both
def test_a_plain_answer_may_pass_untouched(walks: Walks) -> None:
    body = fetched()
    scan = walks.scan_fetch_response(body, 12, 0, len(body))
    assert scan.untouched
    assert scan.record_bytes == 5


@both
@pytest.mark.parametrize(
    "change",
    [
        {"error_code": 1},
        {"preferred_read_replica": 2},
        {"current_leader": LeaderIdAndEpoch(1, 2)},
        {"diverging_epoch": EpochEndOffset(1, 2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_speaks_of_the_cluster_behind_does_not_pass_untouched(walks: Walks, change: dict[str, object]) -> None:
    body = fetched(**change)
    assert not walks.scan_fetch_response(body, 12, 0, len(body)).untouched


@both
@pytest.mark.parametrize(
    "response",
    [FetchResponse(error_code=70), FetchResponse(session_id=9), FetchResponse(node_endpoints=[NodeEndpoint(host="h")])],
    ids=["error", "session", "endpoints"],
)
def test_nor_does_a_top_level_hint(walks: Walks, response: FetchResponse) -> None:
    body = encode(response, 16)
    assert not walks.scan_fetch_response(body, 16, 0, len(body)).untouched


@both
def test_a_producer_is_seen_without_decoding(walks: Walks) -> None:
    records = bytes(batch(b"a", producer_id=5, epoch=1, sequence=10, count=4)) + bytes(batch(b"b"))
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(records=records), PartitionProduceData(records=None)]
            )
        ]
    )
    body = encode(request, 9)
    full, empty = walks.scan_produce(body, 9, 0, len(body)).topics[0].partitions
    first = full.first_batch(body)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.record_count) == (5, 1, 10, 4)
    assert full.batch_starts(body) == [full.records_start, full.records_start + len(batch(b"a"))]
    assert empty.batch_starts(body) == []
    with pytest.raises(WireError):
        empty.first_batch(body)


@both
def test_the_headers_of_first_batches_are_taken_where_all_have_one(walks: Walks) -> None:
    batches = [bytes(batch(payload, sequence=number)) for number, payload in enumerate((b"", b"a", b"bc"))]

    def headers(*records: bytes | None) -> bytes | None:
        parts = [PartitionProduceData(number, each) for number, each in enumerate(records)]
        topics = [TopicProduceData("t", partition_data=parts[:2]), TopicProduceData("u", partition_data=parts[2:])]
        body = PAD + encode(ProduceRequest(topic_data=topics), 9)
        return walks.first_headers(body, walks.scan_produce(body, 9, len(PAD), len(body)))

    assert headers(*batches) == b"".join(each[:61] for each in batches)
    assert headers(batches[1] + batches[2], batches[0]) == batches[1][:61] + batches[0][:61]
    for without in (None, b"", batches[0][:60]):
        assert headers(batches[1], batches[2], without) is None
    body = encode(ProduceRequest(topic_data=[TopicProduceData("t")]), 9)
    with pytest.raises(WireError):
        walks.first_headers(body[:-1], walks.scan_produce(body, 9, 0, len(body)))


@both
@pytest.mark.parametrize(
    ("partitions", "leader"),
    [
        ([0, 1], 7),
        ([1], 7),
        ([2, 2], 8),
        ([0, 2], None),
        ([0, 3], None),
        ([3], None),
        ([0, 4], None),
        ([-1], None),
        ([], None),
    ],
)
def test_one_broker_leads_all_partitions_of_a_topic_or_none_does(
    walks: Walks, partitions: list[int], leader: int | None
) -> None:
    parts = [PartitionProduceData(number, b"") for number in partitions]
    body = encode(ProduceRequest(topic_data=[TopicProduceData("t", partition_data=parts)]), 9)
    (topic,) = walks.scan_produce(body, 9, 0, len(body)).topics
    assert walks.led_by(topic, (7, 7, 8, None)) == leader


@both
@some
@given(data=st.data())
def test_records_are_counted_as_by_hand(walks: Walks, data: st.DataObject) -> None:
    """Whole batches, cut ones, markers of transactions, older formats, lies about lengths and counts."""

    def some_batch() -> bytes:
        found = batch(
            data.draw(st.binary(max_size=9)),
            count=data.draw(st.integers(-9, (1 << 31) - 1) | st.integers(0, 9)),
            attributes=data.draw(st.sampled_from((0, 0, 0x20, 3))),
        )
        if data.draw(st.integers(0, 5)) == 0:
            found[data.draw(st.sampled_from((8, 11, 16)))] = data.draw(st.integers(0, 255))
        return bytes(found)

    def some_end() -> bytes:
        return some_batch()[: data.draw(st.sampled_from((60, 62, 999)))]

    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                f"t{number}",
                partition_data=[
                    PartitionProduceData(
                        records=b"".join((*(some_batch() for _ in range(many)), some_end())),
                    )
                    for many in data.draw(st.lists(st.integers(0, 2), max_size=3))
                ],
            )
            for number in range(2)
        ]
    )
    body = PAD + encode(request, 9)
    scan = walks.scan_produce(body, 9, len(PAD), len(body))
    assume(walks.first_headers(body, scan) is not None)

    for topic, asked in zip(scan.topics, request.topic_data, strict=True):
        by_hand = [count_records(body, part.records_start, part.records_end) for part in topic.partitions]
        assert [part.records for part in topic.partitions] == by_hand
        assert topic.records == sum(by_hand)
        assert topic.record_bytes == sum(len(part.records or b"") for part in asked.partition_data)


@both
def test_many_tiny_batches_are_not_counted_one_by_one(walks: Walks) -> None:
    most = (1 << 31) - 1
    records = bytes(batch(bytes(1000), count=most)) * (MOST_COUNTED + 700)
    parts = [PartitionProduceData(number, records) for number in range(2)]
    body = encode(ProduceRequest(topic_data=[TopicProduceData("t", partition_data=parts)]), 9)
    scan = walks.scan_produce(body, 9, 0, len(body))
    assert walks.first_headers(body, scan) is not None
    assert scan.topics[0].records == 2 * most * (MOST_COUNTED + 700)


@both
def test_a_correlation_id_is_patched_in_place(walks: Walks) -> None:
    buffer = bytearray(12)
    walks.patch_correlation_id(buffer, 4, -2)
    assert buffer.hex() == "00000000fffffffe00000000"
    assert walks.int32_at(buffer, 4) == -2
    for at in (-1, 9):
        with pytest.raises(WireError):
            walks.patch_correlation_id(buffer, at, 1)
        with pytest.raises(WireError):
            walks.int32_at(buffer, at)


@both
@pytest.mark.parametrize("version", [7, 9, 12, 13])
def test_a_request_with_one_partition_shows_in_its_beginning_where_it_ends(walks: Walks, version: int) -> None:
    records = bytes(batch(bytes(5_000), producer_id=7, epoch=0, sequence=3))
    topic = TopicProduceData("apples", bytes(range(16)), partition_data=[PartitionProduceData(4, records)])
    body = PAD + encode(ProduceRequest("t", -1, 1000, [topic]), version)
    for known in (len(PAD) + 200, len(body)):
        found = walks.scan_produce_beginning(body[:known], version, len(PAD), known, len(body))
        whole = walks.scan_produce(body, version, len(PAD), len(body))
        assert found is not None
        assert (found.acks, found.timeout_ms, found.transactional_id) == (-1, 1000, "t")
        assert (found.end, found.tags_at, found.topics_at) == (whole.end, whole.tags_at, whole.topics_at)
        (topic_found,), (topic_whole,) = found.topics, whole.topics
        assert (topic_found.name, topic_found.topic_id) == (topic_whole.name, topic_whole.topic_id)
        assert (topic_found.partitions_at, topic_found.end) == (topic_whole.partitions_at, topic_whole.end)
        (part_found,), (part_whole,) = topic_found.partitions, topic_whole.partitions
        assert all(
            getattr(part_found, name) == getattr(part_whole, name)
            for name in ("partition", "start", "end", "records_start", "records_end")
        )
    for size in (len(body) - 1, len(body) + 1):  # something else follows, or a part is missing
        assert walks.scan_produce_beginning(body, version, len(PAD), len(body), size) is None
    two = TopicProduceData("apples", partition_data=[PartitionProduceData(n, records) for n in (0, 1)])
    none = TopicProduceData("apples", partition_data=[PartitionProduceData(0, None)])
    for topics in ([two], [topic, topic], [none], []):
        body = encode(ProduceRequest(None, -1, 1000, topics), version)
        assert walks.scan_produce_beginning(body, version, 0, len(body), len(body)) is None
