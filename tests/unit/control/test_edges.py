"""Page tokens and cluster features: small things at the edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.api import pages
from services.control.domain.errors import InvalidField
from services.control.upstream.features import parse_features

KAFKA_4_3 = bytes.fromhex(
    "00000001 0000 02 0012 0000 0005 00 00000000 02"  # no error, one api, no throttle, two tagged fields
    "00 17 02 116d657461646174612e76657273696f6e 0007 001e 00"  # supported: metadata.version 7-30
    "02 17 02 116d657461646174612e76657273696f6e 001e 0007 00"  # finalized: metadata.version 30
    "00"
)


def test_pages_hold_a_list_together() -> None:
    names = [f"n{number}" for number in range(5)]
    first, token = pages.cut("names", names, names, 2, "")
    second, token = pages.cut("names", names, names, 2, token)
    last, end = pages.cut("names", names, names, 2, token)
    assert ([*first, *second, *last], end) == (names, "")


def test_a_page_goes_on_where_it_was_when_items_come_and_go() -> None:
    _, token = pages.cut("names", ["a", "c", "e"], ["a", "c", "e"], 2, "")
    assert pages.cut("names", ["b", "d", "e"], ["b", "d", "e"], 2, token)[0] == ["d", "e"]


@given(st.text(max_size=40))
def test_a_token_from_elsewhere_is_refused(text: str) -> None:
    if text:
        with pytest.raises(InvalidField, match="page_token"):
            pages.place_of("names", text)


def test_a_token_of_another_list_is_refused() -> None:
    with pytest.raises(InvalidField, match="not a token of this list"):
        pages.place_of("names", pages.token("others", 1))


@pytest.mark.parametrize(("wanted", "size"), [(0, 100), (7, 7), (5000, 1000)])
def test_page_sizes(wanted: int, size: int) -> None:
    assert pages.page_size(wanted) == size


def test_features_of_a_cluster() -> None:
    assert parse_features(KAFKA_4_3) == {"metadata.version": "30"}
    assert parse_features(b"\0\0\0\1\0\x23") == {}
