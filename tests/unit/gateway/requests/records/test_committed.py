"""How an answer to read_committed readers of several clusters is cut."""

import pytest

from services.gateway.requests.records.broker_fetches import Found
from services.gateway.requests.records.committed import shortened
from services.gateway.wire.batches import MOST_COUNTED, batches, end_of_whole, first_transactional
from services.gateway.wire.codec import decode
from services.gateway.wire.messages import FetchResponse
from services.gateway.wire.messages.fetch import AbortedTransaction, FetchableTopicResponse, PartitionData
from services.gateway.wire.scanner import Entries, join_fetch_response, scan_fetch_response
from services.gateway.wire.scanner.fetch_join import cut_entry
from services.gateway.wire.schema import NO_UUID
from tests.unit.gateway.requests.records.fetching import raw
from tests.unit.gateway.wire.records import batch

TRANSACTIONAL = 0x10


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
