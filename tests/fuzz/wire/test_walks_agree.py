"""The compiled walks are the same as those in Python, whatever they are given: the same notes, or the same error."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.wire.codec import encode
from services.gateway.wire.frames import encode_request, encode_response
from services.gateway.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Struct
from tests.fixtures.sweeps import REPEAT
from tests.fuzz.wire.test_hostile_bytes import damaged
from tests.unit.gateway.wire.both_walks import COMPILED, PYTHON, RUNNING, is_compiled
from tests.unit.gateway.wire.strategies import structs

pytestmark = is_compiled
some = settings(max_examples=12 * REPEAT, deadline=None, suppress_health_check=list(HealthCheck))

WALKS: list[tuple[str, type[Struct], int]] = [
    (walk, cls, version)
    for walk, cls, versions in (
        ("scan_produce", ProduceRequest, (2, 8, 9, 13)),
        ("scan_fetch_request", FetchRequest, (2, 3, 4, 6, 8, 10, 11, 12, 14, 15)),
        ("scan_fetch_response", FetchResponse, (0, 1, 4, 5, 7, 11, 12, 13)),
        ("produce_response_is_clean", ProduceResponse, (4, 7, 8, 12, 13)),
        ("topics_of_clean_response", ProduceResponse, (8, 12)),
    )
    for version in versions
]
"""In versions of each form."""
each_walk = pytest.mark.parametrize(("walk", "cls", "version"), WALKS)


def same(walk: str, *arguments: object) -> None:
    """Both say the same about these bytes."""
    in_python, compiled = getattr(PYTHON, walk), getattr(COMPILED, walk)
    assert _outcome(compiled, *arguments) == _outcome(in_python, *arguments)


def _outcome(walk: Callable[..., object], *arguments: object) -> object:
    try:
        return _told(walk(*arguments))
    except WireError as error:
        return str(error), error.field, error.offset, error.fact


def _told(note: Any) -> object:
    """All that a note says."""
    if isinstance(note, list | tuple):
        return [_told(one) for one in note]
    for source in RUNNING:
        fields = getattr(getattr(source, type(note).__name__, None), "__slots__", None)
        if fields is not None:
            return {name: _told(getattr(note, name)) for name in fields}
    assert note is None or isinstance(note, int | str | bytes), f"{note!r} is no note"
    return note


@each_walk
@some
@given(body=st.binary(max_size=120))
def test_about_noise(walk: str, cls: type[Struct], version: int, body: bytes) -> None:
    same(walk, body, version, 0, len(body))


@each_walk
@some
@given(data=st.data())
def test_about_messages_whole_damaged_and_in_part(
    walk: str, cls: type[Struct], version: int, data: st.DataObject
) -> None:
    body = encode(data.draw(structs(cls, version, unknown_tags=data.draw(st.booleans()) and version >= 12)), version)
    same(walk, body, version, 0, len(body))
    same(walk, memoryview(bytearray(damaged(data, body))), version, 0, len(body))
    beyond = st.integers(-5, len(body) + 5)
    same(walk, body, version, data.draw(beyond), data.draw(beyond))


@some
@given(noise=st.binary(max_size=40), start=st.integers(-3, 12), key=st.integers(-2, 300), version=st.integers(-1, 20))
def test_about_headers_of_noise(noise: bytes, start: int, key: int, version: int) -> None:
    same("parse_request_header", noise, start, len(noise))
    same("parse_response_header", noise, start, len(noise), key, version)


@some
@pytest.mark.parametrize("version", [2, 8, 9, 13])
@given(data=st.data())
def test_about_the_beginning_of_a_request(version: int, data: st.DataObject) -> None:
    body = encode(data.draw(structs(ProduceRequest, version)), version)
    known = data.draw(st.integers(0, len(body)))
    size = data.draw(st.integers(len(body) - 2, len(body) + 2))
    same("scan_produce_beginning", body[:known], version, 0, known, size)
    same("scan_produce_beginning", damaged(data, body)[:known], version, 0, known, size)
    same("scan_produce_beginning", body, version, data.draw(st.integers(-3, 5)), known, size)


@pytest.mark.parametrize("version", [0, 8, 9, 12])
@pytest.mark.parametrize("client_id", [None, "", "shop", "ü" * 300])
def test_about_headers(version: int, client_id: str | None) -> None:
    request = encode_request(MetadataRequest(topics=[]), version, 7, client_id)
    response = encode_response(MetadataResponse(), version, -7)
    for cut in range(4, len(request) + 1):
        same("parse_request_header", request, 4, cut)
    for cut in range(4, len(response) + 1):
        same("parse_response_header", response, 4, cut, 3, version)
