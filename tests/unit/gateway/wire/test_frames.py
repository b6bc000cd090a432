"""Frames and headers, as a stream delivers them."""

import pytest

from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import (
    SIZE_BYTES,
    FrameSplitter,
    FrameTooLargeError,
    describe,
    encode_request,
    encode_response,
    parse_request_header,
    request_prefix,
    response_prefix,
)
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from services.gateway.wire.primitives import WireError
from tests.unit.gateway.wire.both_walks import Walks, both


@both
def test_a_request_is_found_in_the_stream_and_its_header_read(walks: Walks) -> None:
    stream = encode_request(MetadataRequest(topics=None), 9, 77, "shop")
    split = FrameSplitter().split(stream, 0, len(stream))
    assert split.frames == [(SIZE_BYTES, len(stream))]
    assert (split.rest, split.missing) == (len(stream), 0)

    header = walks.parse_request_header(stream, *split.frames[0])
    assert (header.api_key, header.api_version, header.correlation_id) == (ApiKey.METADATA, 9, 77)
    assert header.client_id == "shop"
    assert decode(MetadataRequest, 9, stream, header.body_offset).topics is None
    assert describe(header) == "Metadata v9 #77 from 'shop'"


def test_frames_lie_anywhere_in_a_shared_buffer() -> None:
    one = encode_request(ApiVersionsRequest(), 0, 1, None)
    two = encode_request(ApiVersionsRequest(client_software_name="kcat"), 3, 2, "c")
    buffer = b"other's" + one + two + one[:6]
    split = FrameSplitter().split(buffer, 7, len(buffer))
    first, second = split.frames
    assert buffer[first[0] - SIZE_BYTES : first[1]] == one
    assert buffer[second[0] - SIZE_BYTES : second[1]] == two
    assert buffer[split.rest :] == one[:6]
    assert split.missing == len(one) - 6


@pytest.mark.parametrize("arrived", [0, 1, 3])
def test_a_size_that_has_not_arrived_is_no_frame(arrived: int) -> None:
    split = FrameSplitter().split(b"\x00" * arrived, 0, arrived)
    assert split == ([], 0, 0)


@pytest.mark.parametrize(
    ("size", "error"), [("7fffffff", FrameTooLargeError), ("ffffffff", WireError), ("00000003", WireError)]
)
def test_a_lying_size_is_refused_before_its_bytes_come(size: str, error: type[WireError]) -> None:
    with pytest.raises(error, match="frame size at byte 0"):
        FrameSplitter(max_frame_bytes=1000).split(bytes.fromhex(size), 0, 4)


def test_who_speaks_tls_to_a_plain_listener_is_told_apart() -> None:
    with pytest.raises(FrameTooLargeError, match="first bytes of TLS"):
        FrameSplitter().split(bytes.fromhex("1603010200010001fc0303"), 0, 11)


@both
def test_the_response_header_of_api_versions_has_no_tags(walks: Walks) -> None:
    api_versions = encode_response(ApiVersionsResponse(), 3, 5)
    header = walks.parse_response_header(api_versions, 4, len(api_versions), ApiKey.API_VERSIONS, 3)
    assert (header.correlation_id, header.body_offset) == (5, 8)
    metadata = encode_response(MetadataResponse(), 9, 5)
    header = walks.parse_response_header(metadata, 4, len(metadata), ApiKey.METADATA, 9)
    assert (header.correlation_id, header.body_offset) == (5, 9)


def test_a_prefix_counts_the_body_that_follows_from_elsewhere() -> None:
    whole = encode_request(MetadataRequest(topics=None), 9, 1, "c")
    body = whole[parse_request_header(whole, 4, len(whole)).body_offset :]
    assert bytes(request_prefix(ApiKey.METADATA, 9, 1, "c", len(body))) + body == whole
    answer = encode_response(MetadataResponse(), 9, 1)
    assert bytes(response_prefix(ApiKey.METADATA, 9, 1, len(answer) - 9)) + answer[9:] == answer


def test_an_unknown_key_still_names_its_client() -> None:
    header = parse_request_header(bytes.fromhex("2710" + "0001" + "00000009" + "0001") + b"x", 0, 11)
    assert describe(header) == "api key 10000 v1 #9 from 'x'"


@pytest.mark.parametrize("cut", range(12))
def test_a_header_cut_short_is_refused(cut: int) -> None:
    whole = bytes(request_prefix(ApiKey.METADATA, 9, 1, "c", 0))[4:]
    with pytest.raises(WireError, match="request header"):
        parse_request_header(whole, 0, min(cut, len(whole) - 1))


def test_a_response_is_not_a_request() -> None:
    with pytest.raises(TypeError, match="MetadataResponse is not a request"):
        encode_request(MetadataResponse(), 9, 1, None)
