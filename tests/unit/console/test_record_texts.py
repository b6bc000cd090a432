"""How bytes of a record read on a page, as a line for a shell, and as positions in an address."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from services.console.records.curl import as_curl
from services.console.records.texts import BASE64, shown
from services.console.records.wanted import positions_of, positions_text


@pytest.mark.parametrize(
    ("data", "text", "label"),
    [
        (None, "", "null"),
        (b"", "", "empty"),
        (b"ripe", "ripe", "text"),
        (b"7", "7", "text"),
        (b'{"a": 1.0}', '{"a": 1.0}', "JSON"),
        (b"{", "{", "text"),
        ("\u202eab".encode(), "\\u202eab", "text"),
        (b"\xff\x00", "ff 00", "bytes in hex"),
        (b"a\x00b", "61 00 62", "bytes in hex"),
        (b"\x00\x00\x00\x00\x07\x02\x81", "00 00 00 00 07 02 81", "bytes in hex, schema id 7"),
        (b'\x00\x00\x00\x00\x07{"a":1}', '{"a":1}', "JSON, schema id 7"),
    ],
)
def test_bytes_as_they_are_shown(data: bytes | None, text: str, label: str) -> None:
    made = shown(data, 100)
    assert (made.text, made.label) == (text, label)


def test_a_cut_says_so_and_splits_no_character() -> None:
    made = shown("ääää".encode(), 3)
    assert made.text == "ä"
    assert made.is_cut
    assert made.size == 8
    assert shown(b"\xff\xff\xff", 2, BASE64).text == "//8="


class Given:
    """A record."""

    def __init__(self, key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> None:
        self.parts: dict[str, Any] = {"key": key, "value": value, "headers": list(headers)}

    def topic(self) -> str:
        return "it's"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def key(self) -> bytes | None:
        key: bytes | None = self.parts["key"]
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self.parts["value"]
        return value

    def headers(self) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = self.parts["headers"]
        return headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


def test_a_curl_line_can_be_pasted_whatever_is_in_the_record() -> None:
    line = as_curl(Given(b"'; rm -rf /", b"\xff", ("kind", b"$(id)"), ("none", None)), "http://127.0.0.1:8084/")
    words = shlex.split(line)
    assert words[:2] == ["curl", "http://127.0.0.1:8084/producers/it%27s"]
    assert json.loads(words[-1]) == {
        "keyFormat": "string",
        "valueFormat": "binary",
        "records": [
            {
                "key": "'; rm -rf /",
                "value": "/w==",
                "headers": [{"key": "kind", "value": "JChpZCk="}, {"key": "none"}],
                "partition": 2,
            }
        ],
    }
    assert as_curl(Given(None, b"x"), "").startswith('curl "$SIDECAR"/producers/')
    assert as_curl(Given(None, b"x" * 20_000), "") == ""


def test_positions_stand_in_an_address() -> None:
    assert positions_of(positions_text({1: 40, 0: 12})) == {0: 12, 1: 40}
    assert positions_of("") == {}
    for wrong in ("x", "1", "1-2-3", "0-1." * 101 + "0-1"):
        with pytest.raises(ValueError):  # which one does not matter
            positions_of(wrong)
