"""Records as the backend reads them, and the address where it finds its instance."""

import base64
import json
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from services.sidecar.api.consumers import epoch_ms
from services.sidecar.api.public_address import public_address
from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.consuming.record_text import record_array, record_lines
from services.sidecar.faults import Fault
from services.sidecar.records import Consumed

Headers = list[tuple[str, bytes | None]]
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def shown(
    headers: Headers | None = None, shape: HeaderShape = HeaderShape.MAP, key: object = "k", value: object = 1
) -> Any:
    record = Consumed("a", 0, 5, 1700000000000, key, value, headers or [("X-Correlation-Id", b"c")], 2)
    (one,) = json.loads(record_array([record], shape))
    return one


def test_a_record_has_the_recorded_members_in_their_order() -> None:
    assert list(shown().items()) == [
        ("topic", "a"),
        ("key", "k"),
        ("value", 1),
        ("headers", {"X-Correlation-Id": "c"}),
        ("partition", 0),
        ("offset", 5),
        ("timestamp", 1700000000000),
    ]


def test_nulls_are_left_out() -> None:
    assert {"key", "value"}.isdisjoint(shown(key=None, value=None))


def test_headers_are_texts_and_the_last_of_a_name_wins() -> None:
    given: Headers = [("a", b"1"), ("a", b"2"), ("b", b"\xff"), ("c", None), ("traceparent", TRACE.encode())]
    headers = shown([*given, ("X-Correlation-Id", b"x")])["headers"]
    assert headers == {"a": "2", "b": "�", "c": "", "traceparent": TRACE, "X-Correlation-Id": "x"}


def test_a_list_of_headers_keeps_duplicates_and_bytes() -> None:
    headers = shown([("a", b"1"), ("a", b"\xff"), ("c", None), ("x-correlation-id", b"x")], HeaderShape.LIST)["headers"]
    assert headers == [
        {"key": "a", "value": "MQ=="},
        {"key": "a", "value": "/w=="},
        {"key": "c", "value": None},
        {"key": "x-correlation-id", "value": "eA=="},
    ]


def test_a_correlation_id_is_made_and_no_trace_is() -> None:
    as_map = shown([("a", b"1")])["headers"]
    assert set(as_map) == {"a", "X-Correlation-Id"}
    assert len(as_map["X-Correlation-Id"]) == 22
    (_, made) = shown([("a", b"1")], HeaderShape.LIST)["headers"]
    assert (made["key"], len(base64.b64decode(made["value"]))) == ("X-Correlation-Id", 22)


def test_integers_of_any_length() -> None:
    assert shown(value={"n": 2**70}, key=2**65)["value"] == {"n": 2**70}


def test_a_line_is_one_line() -> None:
    record = Consumed("a", 0, 5, 0, "two\nlines", orjson.Fragment(b'{\r\n"n":\n1}'), [], 2)
    (line,) = record_lines([record], HeaderShape.MAP)
    assert b"\n" not in line
    assert b"\r" not in line
    assert (json.loads(line)["key"], json.loads(line)["value"]) == ("two\nlines", {"n": 1})


@pytest.mark.parametrize(
    ("headers", "public_url", "trust", "address"),
    [
        ({"host": "sidecar:8084"}, "", False, "http://sidecar:8084"),
        ({"host": "[::1]:8084"}, "", False, "http://[::1]:8084"),
        ({"host": "sidecar"}, "https://mesh.example/kafka/", False, "https://mesh.example/kafka"),
        ({"host": "a", "x-forwarded-proto": "https", "x-forwarded-host": "b"}, "", False, "http://a"),
        ({"host": "a", "x-forwarded-proto": "https, http", "x-forwarded-host": "b, c"}, "", True, "https://b"),
        ({"host": "a", "x-forwarded-prefix": "/kafka/"}, "", True, "http://a/kafka"),
        ({"host": "a", "x-forwarded-proto": "gopher", "x-forwarded-prefix": "?"}, "", True, "http://a"),
        ({"host": "a/b"}, "", False, ""),
        ({}, "", False, ""),
    ],
)
def test_where_callers_reach_this_sidecar(headers: dict[str, str], public_url: str, trust: bool, address: str) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    assert public_address(Request(scope), public_url, trust_forwarded=trust) == address


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01T01:00:00.250+01:00", 1767225600250),
        ("2026-01-01T00:00:00", 1767225600000),
        ("2026-01-01", 1767225600000),
        (1767225600000, 1767225600000),
        ("1767225600000", 1767225600000),
        (0, 0),
    ],
)
def test_times(given: str | int, ms: int) -> None:
    assert epoch_ms(given, "/t") == ms


@pytest.mark.parametrize("given", ["", "soon", "1969-12-31T23:59:59Z", 10**16, "9" * 30, "²"])
def test_what_is_no_time(given: str | int) -> None:
    with pytest.raises(Fault, match="/t: "):
        epoch_ms(given, "/t")
