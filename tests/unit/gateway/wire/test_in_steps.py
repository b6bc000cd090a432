"""Messages with very many structs are read and written in steps, and the bytes are those of the codec."""

from collections.abc import Generator
from typing import Any

import pytest

from mesh.at_once import done_at_once
from services.gateway.wire.codec import decode, encode
from services.gateway.wire.in_steps import STRUCTS_IN_A_STEP, decode_in_steps, encode_in_steps
from services.gateway.wire.messages import MetadataResponse
from services.gateway.wire.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from services.gateway.wire.primitives import WireError

MANY = 5 * STRUCTS_IN_A_STEP


def message(version: int) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            error_code=number % 3,
            name=f"topic-{number}",
            partitions=[MetadataResponsePartition(partition_index=n, leader_id=n) for n in range(number % 4)],
        )
        for number in range(MANY)
    ]
    named = MetadataResponse(brokers=[MetadataResponseBroker(1, "localhost", 9092)], topics=topics)
    return decode(MetadataResponse, version, encode(named, version))


def steps_of(work: Generator[None, None, Any]) -> int:
    return sum(1 for _ in work)


@pytest.mark.parametrize("version", range(14))
def test_every_version_is_the_codec_s(version: int) -> None:
    wanted = message(version)
    written = encode(wanted, version)
    assert done_at_once(encode_in_steps(wanted, version)) == written
    assert done_at_once(decode_in_steps(MetadataResponse, version, b"head" + written, 4)) == wanted


def test_each_step_has_a_few_structs() -> None:
    assert MANY // STRUCTS_IN_A_STEP <= steps_of(encode_in_steps(message(12), 12)) <= MANY // STRUCTS_IN_A_STEP + 2
    written = encode(message(12), 12)
    assert steps_of(decode_in_steps(MetadataResponse, 12, written)) >= MANY // STRUCTS_IN_A_STEP


@pytest.mark.parametrize("fault", [b"\x00", b""])
def test_bytes_that_are_not_the_message_are_refused(fault: bytes) -> None:
    written = encode(message(12), 12)
    wrong = written + fault if fault else written[:-5]
    with pytest.raises(WireError):
        done_at_once(decode_in_steps(MetadataResponse, 12, wrong))
