"""Old message sets and batches from anyone: converted, or said to be corrupt; never a crash, never much memory."""

import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.compression import Allowance, Codec, compress, decompress
from services.gateway.wire.legacy import conversion
from services.gateway.wire.legacy.conversion import Corrupt, Readable, Stored, batches_of, message_sets_of
from services.gateway.wire.legacy.message_sets import write_message
from services.gateway.wire.legacy.record import Record
from services.gateway.wire.primitives import WireError
from tests.fixtures.sweeps import REPEAT
from tests.fuzz.wire.test_hostile_bytes import damaged
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1, MAGIC_1_LOG_APPEND_TIME

more = settings(max_examples=50 * REPEAT, deadline=None, suppress_health_check=list(HealthCheck))
SETS = [each for sets in (MAGIC_0, MAGIC_1, MAGIC_1_LOG_APPEND_TIME) for each in sets.values()]
BATCHES = [batch for batch in batches_of(tuple(SETS)) if isinstance(batch, bytes)]
MIB = 1024 * 1024


@more
@given(noise=st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    (up,) = batches_of((noise,))
    assert up is None or isinstance(up, bytes | Corrupt)
    for magic in (0, 1):
        (down,) = message_sets_of((Stored(noise, 0, MIB),), magic, MIB)
        assert isinstance(down, Readable | Corrupt)


@more
@given(data=st.data(), message_set=st.sampled_from(SETS))
def test_damaged_message_sets(data: st.DataObject, message_set: bytes) -> None:
    (up,) = batches_of((damaged(data, message_set),))
    assert up is None or isinstance(up, bytes | Corrupt)


@more
@given(data=st.data(), inner=st.sampled_from(SETS), codec=st.sampled_from(Codec), magic=st.sampled_from([0, 1]))
def test_right_checksums_around_damaged_bytes(data: st.DataObject, inner: bytes, codec: Codec, magic: int) -> None:
    """What a checksum would give away at once reaches the codecs, and the reader of what comes out of them."""
    packed = damaged(data, compress(codec, damaged(data, inner)))
    wrapper = bytearray()
    write_message(wrapper, magic, Record(data.draw(st.integers(-(1 << 63), (1 << 63) - 1)), 5, None, packed), codec)
    (up,) = batches_of((bytes(wrapper),))
    assert up is None or isinstance(up, bytes | Corrupt)
    (down,) = message_sets_of((Stored(bytes(wrapper), 0, MIB),), magic, MIB)
    assert isinstance(down, Readable | Corrupt)


@more
@given(data=st.data(), batch=st.sampled_from(BATCHES), magic=st.sampled_from([0, 1]))
def test_damaged_batches_with_right_checksums(data: st.DataObject, batch: bytes, magic: int) -> None:
    body = bytearray(damaged(data, batch)[: len(batch)])
    body[8:12] = (len(body) - 12).to_bytes(4, "big")
    if len(body) > 61:
        body[16] = 2
        body[17:21] = crc32c(bytes(body[21:])).to_bytes(4, "big")
    (down,) = message_sets_of((Stored(bytes(body), 0, MIB),), magic, MIB)
    assert isinstance(down, Readable | Corrupt)


@more
@given(noise=st.binary(max_size=300), codec=st.sampled_from(Codec))
def test_no_codec_lets_an_error_of_its_own_out(noise: bytes, codec: Codec) -> None:
    try:
        assert len(decompress(codec, noise, Allowance(MIB))) <= max(MIB, len(noise))
    except WireError as error:
        assert str(error)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.name)
def test_a_bomb_takes_no_more_memory_than_is_allowed(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "MOST_DECOMPRESSED", 4 * MIB)
    message, wrapper = bytearray(), bytearray()
    write_message(message, 1, Record(0, 5, None, bytes(64 * MIB)))
    write_message(wrapper, 1, Record(0, 5, None, compress(codec, message)), codec)
    bomb = bytes(wrapper)
    del message
    tracemalloc.start()
    try:
        (found,) = batches_of((bomb,))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(found, Corrupt)
    assert peak < 16 * MIB
