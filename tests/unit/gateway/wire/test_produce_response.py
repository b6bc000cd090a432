"""The clean-or-not scan of Produce responses agrees with the decoder, in every version, and survives any bytes."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.wire.codec import decode, encode
from services.gateway.wire.messages import ProduceResponse
from services.gateway.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner.produce_response import Awaited, join_clean, with_topic_ids
from tests.unit.gateway.wire.both_walks import Walks, both

VERSIONS = range(3, 13)


def response(topics: int = 2, partitions: int = 3) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                f"topic-{'x' * 150}-{t}",
                partition_responses=[PartitionProduceResponse(p, 0, 1 << 40, -1, 7) for p in range(partitions)],
            )
            for t in range(topics)
        ],
        throttle_time_ms=9,
    )


def is_clean(walks: Walks, message: ProduceResponse, version: int) -> bool:
    body = b"header" + encode(message, version)
    return walks.produce_response_is_clean(body, version, 6, len(body))


@both
@pytest.mark.parametrize("version", VERSIONS)
def test_the_base_offsets_of_a_clean_answer_are_found(walks: Walks, version: int) -> None:
    body = b"header" + encode(response(), version)
    names = [topic.name.encode() for topic in response().responses]
    found = walks.base_offsets(body, version, 6, len(body))
    assert found == {(name, partition): 1 << 40 for name in names for partition in range(3)}


@both
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("topics", "partitions"), [(0, 0), (1, 1), (2, 3), (1, 200)])
def test_an_answer_without_errors_is_clean(walks: Walks, version: int, topics: int, partitions: int) -> None:
    assert is_clean(walks, response(topics, partitions), version)


def _error(last: PartitionProduceResponse) -> None:
    last.error_code = 6


def _negative(last: PartitionProduceResponse) -> None:
    last.error_code = -1


def _message(last: PartitionProduceResponse) -> None:
    last.error_message = "no"


def _record_error(last: PartitionProduceResponse) -> None:
    last.record_errors = [BatchIndexAndErrorMessage(0, "no")]


def _leader(last: PartitionProduceResponse) -> None:
    last.current_leader = LeaderIdAndEpoch(3, 4)


@both
@pytest.mark.parametrize(
    ("stain", "since"), [(_error, 3), (_negative, 3), (_message, 8), (_record_error, 8), (_leader, 10)]
)
def test_any_stain_is_seen(walks: Walks, stain: Callable[[PartitionProduceResponse], None], since: int) -> None:
    for version in VERSIONS:
        if version >= since:
            message = response()
            stain(message.responses[-1].partition_responses[-1])
            assert not is_clean(walks, message, version), version


@both
def test_endpoints_and_bytes_behind_are_seen(walks: Walks) -> None:
    message = response()
    message.node_endpoints = [NodeEndpoint(1, "real", 9092)]
    assert not is_clean(walks, message, 10)
    for version in VERSIONS:
        body = encode(response(), version) + b"\0"
        assert not walks.produce_response_is_clean(body, version, 0, len(body))


@both
@given(st.binary(max_size=120), st.sampled_from(VERSIONS))
def test_any_bytes_end_in_an_answer_or_a_wire_error(walks: Walks, data: bytes, version: int) -> None:
    with contextlib.suppress(WireError):
        walks.produce_response_is_clean(data, version, 0, len(data))


@both
@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_cut_short_is_never_clean(walks: Walks, version: int) -> None:
    body = encode(response(), version)
    for end in range(len(body)):
        with contextlib.suppress(WireError):
            assert not walks.produce_response_is_clean(body, version, 0, end)


@pytest.mark.parametrize("version", range(9, 13))
def test_a_clean_answer_gets_ids_in_the_place_of_names(version: int) -> None:
    message = response()
    body = b"header" + encode(message, version)
    ids = {topic.name.encode(): bytes([place]) * 16 for place, topic in enumerate(message.responses)}
    pieces = with_topic_ids(body, version, 6, len(body), ids)
    assert pieces is not None
    for place, topic in enumerate(message.responses):
        topic.name, topic.topic_id = "", bytes([place]) * 16
    assert decode(ProduceResponse, 13, b"".join(pieces)) == message


@pytest.mark.parametrize("version", [8, 12])
def test_an_answer_that_is_not_clean_or_not_flexible_is_for_the_decoder(version: int) -> None:
    message = response()
    if version > 8:
        message.responses[0].partition_responses[0].error_code = 6
    body = encode(message, version)
    ids = {topic.name.encode(): b"i" * 16 for topic in message.responses}
    assert with_topic_ids(body, version, 0, len(body), ids) is None


def parts(version: int, *messages: ProduceResponse) -> list[tuple[bytes, int, int, int]]:
    """As they lie in their frames."""
    bodies = [b"header" + encode(message, version) for message in messages]
    return [(body, version, 6, len(body)) for body in bodies]


def awaited(message: ProduceResponse, *, by_id: bool = False) -> list[Awaited]:
    return [
        Awaited(topic.name.encode(), bytes([place]) * 16 if by_id else None, len(topic.partition_responses))
        for place, topic in enumerate(message.responses)
    ]


@pytest.mark.parametrize("version", range(9, 13))
@pytest.mark.parametrize("partitions", [1, 3, 126, 127, 200])
@pytest.mark.parametrize("by_id", [False, True])
def test_clean_answers_become_one_in_the_order_that_is_asked(version: int, partitions: int, by_id: bool) -> None:
    whole = response(topics=5, partitions=partitions)
    shares = [
        ProduceResponse([whole.responses[place] for place in places], throttle_ms)
        for places, throttle_ms in (([3, 0], 9), ([4], 70), ([1, 2], 0))
    ]
    pieces = join_clean(parts(version, *shares), awaited(whole, by_id=by_id))
    assert pieces is not None
    whole.throttle_time_ms = 70  # until then its broker reads nothing from the gateway
    for place, topic in enumerate(whole.responses):
        if by_id:
            topic.name, topic.topic_id = "", bytes([place]) * 16
    assert decode(ProduceResponse, 13 if by_id else version, b"".join(pieces)) == whole


@pytest.mark.parametrize("version", [8, 12])
def test_answers_are_joined_only_when_each_is_clean_flexible_and_whole(version: int) -> None:
    whole = response()
    one, other = ([topic] for topic in whole.responses)

    def joined(*shares: list[TopicProduceResponse]) -> bool:
        return join_clean(parts(version, *map(ProduceResponse, shares)), awaited(whole)) is not None

    assert joined(one, other) == (version == 12)
    assert not joined(one)
    assert not joined(one, other, response(3).responses[2:])
    fewer = response(partitions=2).responses
    assert not joined(one, fewer[1:])
    other[0].partition_responses[0].error_code = 6
    assert not joined(one, other)


@given(st.lists(st.binary(max_size=80), min_size=2, max_size=3))
def test_any_answers_are_joined_or_refused(data: list[bytes]) -> None:
    with contextlib.suppress(WireError):
        join_clean([(each, 9, 0, len(each)) for each in data], [Awaited(b"a", None, 1)] * 2)
