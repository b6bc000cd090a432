"""Reads the batches of partition 0 of `mesh.transactions` into what they say (`mesh.transactions.log`)."""

from typing import Final

from mesh.compression import Allowance
from mesh.transactions import TransactionLog
from services.gateway.wire.batches import BatchHeader, read_batch_header
from services.gateway.wire.legacy.record_batches import read_batch
from services.gateway.wire.primitives import INT16, Buffer, WireError

MOST_DECOMPRESSED: Final = 16 << 20
_COMMIT: Final = 1
_MARKER_TYPE_AT: Final = 2
_LENGTH_FROM: Final = 12
_WHOLE_HEADER: Final = 61


def take(log: TransactionLog, records: Buffer) -> None:
    """The batches of a Fetch; the last one may be cut short. Raises `WireError` for bytes that are no batches."""
    start, end = 0, len(records)
    while True:
        try:
            header = read_batch_header(records, start, end)
        except WireError:
            if end - start >= _WHOLE_HEADER and _length(records, start) <= end - start:
                raise
            return
        if header.base_offset + header.last_offset_delta >= log.next_offset:
            _take_batch(log, records, header)
            log.next_offset = header.base_offset + header.last_offset_delta + 1
        start = header.end


def _take_batch(log: TransactionLog, records: Buffer, header: BatchHeader) -> None:
    pairs = read_batch(records, header, Allowance(MOST_DECOMPRESSED)).records
    for record in pairs:
        key = bytes(record.key or b"")
        value = None if record.value is None else bytes(record.value)
        if header.is_control:
            log.mark(header.producer_id, committed=_marker_type(key) == _COMMIT)
        else:
            log.enter(key, value, header.producer_id if header.is_transactional else None)


def _length(records: Buffer, start: int) -> int:
    return _LENGTH_FROM + int.from_bytes(memoryview(records)[start + 8 : start + _LENGTH_FROM], "big", signed=True)


def _marker_type(key: bytes) -> int:
    return int(INT16.unpack_from(key, _MARKER_TYPE_AT)[0]) if len(key) >= _MARKER_TYPE_AT + INT16.size else -1
