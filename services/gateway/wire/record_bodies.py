"""The bodies of batches (magic 2): records without their compression, and their fields of bytes with a length."""

from mesh.compression import Allowance, codec_of, decompress
from services.gateway.wire.batches import CRC_AT, HEADER_BYTES, BatchHeader, crc_is_right
from services.gateway.wire.primitives import Buffer, WireError, read_varlong


def read_body(buffer: Buffer, header: BatchHeader, allowance: Allowance) -> bytes:
    """The records of the batch that `header` was read from `buffer` for. `WireError` if its CRC is another one."""
    if not crc_is_right(buffer, header):
        raise WireError("batch.crc", header.start + CRC_AT, f"{header.crc:#x} is not that of its bytes")
    packed = memoryview(buffer)[header.start + HEADER_BYTES : header.end]
    return decompress(codec_of(header.attributes), packed, allowance)


def read_span(body: bytes, at: int, stop: int, field: str) -> tuple[int, int]:
    """The start (-1 for null) and the end of a field."""
    length, start = read_varlong(body, at, stop, field)
    if length == -1:
        return -1, start
    if not 0 <= length <= stop - start:
        raise WireError(field, at, f"length {length}, {stop - start} bytes left")
    return start, start + length


def read_bytes(body: bytes, at: int, stop: int, field: str) -> tuple[bytes | None, int]:
    """The field, and its end."""
    start, end = read_span(body, at, stop, field)
    return (None if start < 0 else body[start:end]), end
