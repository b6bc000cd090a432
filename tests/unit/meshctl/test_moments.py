"""What operators may say for a moment."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshctl.moments import moment_of

NOW = datetime(2026, 3, 31, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("23:00 UTC", "2026-03-31T23:00:00+00:00"),
        ("02:00 UTC", "2026-04-01T02:00:00+00:00"),
        ("22:30 UTC", "2026-04-01T22:30:00+00:00"),
        ("2:00:30z", "2026-04-01T02:00:30+00:00"),
        ("+2h", "2026-04-01T00:30:00+00:00"),
        ("+1h30m", "2026-04-01T00:00:00+00:00"),
        ("+45s", "2026-03-31T22:30:45+00:00"),
        ("+7d", "2026-04-07T22:30:00+00:00"),
        ("2026-05-01T02:00:00Z", "2026-05-01T02:00:00+00:00"),
        ("2026-05-01T02:00:00+02:00", "2026-05-01T00:00:00+00:00"),
        (" 2026-05-01 02:00Z ", "2026-05-01T02:00:00+00:00"),
    ],
)
def test_a_moment(said: str, meant: str) -> None:
    assert moment_of(said, NOW).isoformat() == meant


@pytest.mark.parametrize(
    "said",
    ["02:00", "25:00 UTC", "02:61 UTC", "+", "+2", "+2x", "-2h", "tomorrow", "", "2026-05-01T02:00:00", "+9999999d"],
)
def test_what_is_no_moment_or_leaves_it_open(said: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        moment_of(said, NOW)


@given(st.text())
def test_nothing_else_is_raised(said: str) -> None:
    with contextlib.suppress(ValueError, OverflowError):
        assert moment_of(said, NOW).tzinfo is not None
