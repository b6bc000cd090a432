"""Bytes that come in any pieces become lines."""

import pytest

from services.sidecar.api.lines import Lines


def lines_of(*chunks: bytes, max_bytes: int = 5) -> list[bytes | None]:
    lines = Lines(max_bytes)
    return [line for chunk in chunks for line in lines.feed(chunk)] + list(lines.rest())


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\nb"], [b"a", b"b"]),
        ([b"a", b"b", b"\n", b"c"], [b"ab", b"c"]),
        ([b"\n\na\n"], [b"", b"", b"a"]),
        ([b"12345\n"], [b"12345"]),
    ],
)
def test_lines_end_where_they_end_however_they_come(chunks: list[bytes], lines: list[bytes]) -> None:
    assert lines_of(*chunks) == lines


@pytest.mark.parametrize("chunks", [[b"123456\nab\n"], [b"123", b"456", b"789\na", b"b"]])
def test_a_line_over_the_bound_is_told_and_the_next_one_is_read(chunks: list[bytes]) -> None:
    assert lines_of(*chunks) == [None, b"ab"]


def test_a_line_over_the_bound_is_not_held() -> None:
    lines = Lines(5)
    for _ in range(1000):
        assert list(lines.feed(b"123456")) == []
    assert sum(map(len, lines._begun)) <= 5
    assert list(lines.rest()) == [None]
