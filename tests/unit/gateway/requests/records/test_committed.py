"""Which answers to read_committed readers of several clusters go straight on, and how an answer is cut."""

import pytest

from services.gateway.requests.records.committed import shortened
from services.gateway.requests.records.fetch_poll import Found
from services.gateway.requests.records.fetch_road import Asking, FetchRoad
from services.gateway.wire.batches import MOST_COUNTED, batches, end_of_whole, first_transactional
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import encode_request
from services.gateway.wire.messages import FetchResponse
from services.gateway.wire.messages.fetch import AbortedTransaction, FetchableTopicResponse, PartitionData
from services.gateway.wire.scanner import Entries, join_fetch_response, scan_fetch_response
from services.gateway.wire.scanner.fetch_join import cut_entry
from services.gateway.wire.schema import NO_UUID
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.requests.records.fetching import TWO, play, raw, request
from tests.unit.gateway.wire.records import batch

TRANSACTIONAL = 0x10
VERSION = 12


def data(records: bytes) -> FetchableTopicResponse:
    return FetchableTopicResponse("apples", partitions=[PartitionData(0, 0, 60, 60, 0, records=records)])


def polled(isolation_level: int, clusters: dict[str, list[str]]) -> tuple[FetchRoad, Asking, World]:
    """A reader that has read on, with its road and its next poll on that road."""
    world = World(clusters)
    message = request("apples")
    message.isolation_level = isolation_level
    book = play(world, message, VERSION)
    book.answered(raw(data(b"")))
    road = world.session.fetch_road
    assert isinstance(road, FetchRoad)
    frame = memoryview(bytearray(encode_request(message, VERSION, 8, "test")))
    asking = road.take(frame, world.memory.fetch_sessions, world.now, world)
    assert asking is not None
    return road, asking, world


@pytest.mark.parametrize(
    ("isolation_level", "clusters", "attributes", "passes"),
    [
        (1, TWO, TRANSACTIONAL, False),
        (1, TWO, 0, True),
        (0, TWO, TRANSACTIONAL, True),
        (1, {"c1": ["apples"]}, TRANSACTIONAL, True),
    ],
)
def test_only_records_of_transactions_need_the_plan_of_a_careful_reader(
    isolation_level: int, clusters: dict[str, list[str]], attributes: int, passes: bool
) -> None:
    road, asking, _ = polled(isolation_level, clusters)
    records = bytes(batch(base_offset=50)) + bytes(batch(base_offset=51, attributes=attributes))
    assert (road.answered(asking, raw(data(records)).frame) is not None) is passes


@pytest.mark.parametrize(("isolation_level", "clusters", "passes"), [(1, TWO, False), (0, TWO, True)])
def test_no_answer_to_a_careful_reader_passes_while_it_arrives(
    isolation_level: int, clusters: dict[str, list[str]], passes: bool
) -> None:
    road, asking, world = polled(isolation_level, clusters)
    whole = raw(data(bytes(batch(bytes(5000), base_offset=50)))).frame
    beginning = whole[: len(whole) - 3000]
    assert (road.begun(asking, beginning, 3000) is not None) is passes
    assert (asking.poll_bytes == world.poll_bytes) is not passes, "it asks for no more than may be gathered"


def found(version: int, *records: bytes) -> Found:
    aborted = [AbortedTransaction(7, 3), AbortedTransaction(8, 40)]
    part = PartitionData(2, 0, 60, 50, 1, aborted_transactions=aborted, records=b"".join(records))
    if version < 5:
        part.log_start_offset = -1
    frame = raw(FetchableTopicResponse("apples", partitions=[part]), version=version)
    scan = scan_fetch_response(frame.frame, version, frame.body_offset, len(frame.frame))
    return Found(frame.frame, version, scan.topics[0].partitions[0])


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize(("stable", "kept"), [(10, 0), (12, 0), (13, 1), (20, 2), (45, 3), (-1, 0)])
def test_a_cut_answer_ends_before_the_first_batch_that_reaches_the_offset(version: int, stable: int, kept: int) -> None:
    records = [bytes(batch(base_offset=base, count=count)) for base, count in ((10, 3), (13, 1), (20, 5))]
    cut = shortened(found(version, *records), stable)
    entry = cut_entry(cut.buffer, cut.part, version, version)
    body = b"".join(join_fetch_response(version, [Entries("apples", NO_UUID, [entry])]))
    (part,) = decode(FetchResponse, version, body).responses[0].partitions
    assert bytes(part.records or b"") == b"".join(records[:kept])
    assert (part.partition_index, part.high_watermark, part.last_stable_offset) == (2, 60, stable)
    assert [each.first_offset for each in part.aborted_transactions or ()] == [3, 40]


def test_batches_of_transactions_are_found_behind_others_by_their_headers() -> None:
    plain, ours = bytes(batch(base_offset=1)), bytes(batch(base_offset=2, attributes=TRANSACTIONAL))
    for records, expected in ((plain, None), (plain + ours, 2), (plain + ours[:60], None), (b"", None)):
        assert first_transactional(records, 0, len(records)) == expected
    many = plain * (MOST_COUNTED + 1)
    assert first_transactional(many, 0, len(many)) == 1, "nobody looks further"


def test_an_answer_is_cut_at_whole_batches() -> None:
    records = b"".join(bytes(batch(base_offset=base, count=2)) for base in (4, 6))
    first, second = batches(records, 0, len(records))
    ends = [end_of_whole(records, 0, len(records), offset) for offset in (4, 5, 6, 7, 8)]
    assert ends == [0, 0, first.end, first.end, second.end]
    assert end_of_whole(records, 0, len(records) - 1, 8) == first.end
