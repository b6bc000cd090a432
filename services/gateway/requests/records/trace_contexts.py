"""The trace contexts in the records of a Produce, read without opening more of it than the bound allows. No I/O.

Theory of operation
1. Clients that trace write a `traceparent` header into each record. Most records have no headers: a walk from record to
   record passes over their bytes. If records may have headers, a search for this word follows, with the length in
   front of it. Records are read only where the search finds the word.
2. The gateway searches the first `LOOK_BYTES` of a request. These are all bytes of a request that is forwarded as a
   whole. A larger request is searched in its beginning alone, and a record's headers stand behind its value.
3. Records of one batch often have different traces. At most `MOST_RECORDS` records are read, and `MOST_TRACES` count.
4. Compressed batches are not opened: that may take milliseconds on the thread that serves all clients. Such requests
   are traced by the rate alone.
"""

from contextlib import suppress
from itertools import islice
from typing import Final

from mesh.tracing.context import TRACEPARENT, Trace
from services.gateway.wire.batches import HEADER_BYTES, read_kept_header
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_marks import marks_in
from services.gateway.wire.scanner.walks import octets, produce

LOOK_BYTES: Final = 64 * 1024
MOST_RECORDS: Final = 64
MOST_TRACES: Final = 8
_WORD: Final = bytes((2 * len(TRACEPARENT),)) + TRACEPARENT.encode()
"""The name of the header as it stands in a record, its length (a zigzag varint) first."""


def traces_in(frame: memoryview, scan: produce.ProduceScan) -> tuple[Trace, ...] | None:
    """The sampled trace contexts; empty if no context says `sampled`, None if no record has a context."""
    limit = min(scan.end, len(frame), scan.topics_at + LOOK_BYTES)
    data = octets.of(frame)
    found: dict[Trace, None] | None = None
    for topic in scan.topics:
        for part in topic.partitions:
            start, stop = part.records_start, min(part.records_end, limit)
            if start < 0 or not produce.may_have_headers(data, start, stop, MOST_RECORDS):
                continue
            if octets.holds(data, start, stop, _WORD):
                found = found or {}
                _read(bytes(frame[start:stop]), found)
    return tuple([trace for trace in found if trace.is_sampled][:MOST_TRACES]) if found else None


def _read(piece: bytes, found: dict[Trace, None]) -> None:
    """The contexts of the first batch, as far as its bytes are here."""
    with suppress(WireError, ValueError):
        header = read_kept_header(piece[:HEADER_BYTES])
        if header is None or header.compression or header.is_control:
            return
        for marks in islice(marks_in(piece[HEADER_BYTES:], header), MOST_RECORDS):
            trace = Trace.of_record([(name.decode(errors="replace"), value) for name, value in marks.headers])
            if trace:
                found[trace] = None
