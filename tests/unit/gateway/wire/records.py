"""Record batches for tests: real headers with a right CRC around bytes that nobody opens."""

import struct

from crc32c import crc32c


def batch(
    records: bytes = b"records",
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    count: int = 1,
    base_offset: int = 0,
    attributes: int = 0,
    timestamp: int = 1000,
) -> bytearray:
    times = (timestamp, timestamp)
    covered = struct.pack(">hiqqqhii", attributes, count - 1, *times, producer_id, epoch, sequence, count) + records
    head = struct.pack(">qiibI", base_offset, 9 + len(covered), 0, 2, crc32c(covered))
    return bytearray(head + covered)
