"""What a ksqlDB server says on a query stream, however it is cut into pieces."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sidecar.ksqldb.active_query import ActiveQuery
from services.sidecar.ksqldb.frames import (
    BrokenStreamError,
    ContinuationToken,
    Frame,
    FrameReader,
    Header,
    KsqldbError,
    Row,
)
from services.sidecar.ksqldb.rows import RowFormat, body_of

HEADER = b'{"queryId":"q1","columnNames":["ID","NAME"],"columnTypes":["BIGINT","STRING"]}\n'
COLUMNS = Header("q1", ("ID", "NAME"), ("BIGINT", "STRING"))
STREAM = HEADER + b'[1,"a"]\n\n{"continuationToken":"t1"}\n[2,null]\n'
FRAMES = [COLUMNS, Row(b'[1,"a"]'), ContinuationToken("t1"), Row(b"[2,null]")]


def read(*chunks: bytes, ends: bool = True) -> list[Frame]:
    reader = FrameReader(max_line_bytes=1000)
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    return [*frames, *reader.end()] if ends else frames


@given(st.lists(st.integers(0, len(STREAM))))
def test_frames_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(places))) == FRAMES


def test_blank_lines_keep_a_stream_alive_and_say_nothing() -> None:
    assert read(b"\n\n", HEADER, b"\r\n\n") == [COLUMNS]


def test_the_last_line_needs_no_end() -> None:
    assert read(HEADER, b'[1,"a"]') == [COLUMNS, Row(b'[1,"a"]')]


def test_the_server_ends_a_query_by_an_error() -> None:
    reader = FrameReader(1000)
    list(reader.feed(HEADER))
    with pytest.raises(KsqldbError, match="Query terminated") as ended:
        list(reader.feed(b'{"@type":"generic_error","error_code":50000,"message":"Query terminated"}\n'))
    assert (ended.value.code, ended.value.may_pass) == (50000, True)


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (HEADER + b'[1,"a', "not a whole JSON value"),
        (HEADER + b"[1" * 501, "more than 1000 bytes"),
        (HEADER + HEADER, "not a part of a query stream"),
        (b"[1]\n", "not a part of a query stream"),
        (b"", "ended before it began"),
        (b"\n", "ended before it began"),
    ],
)
def test_what_is_no_query_stream_is_named(stream: bytes, says: str) -> None:
    with pytest.raises(BrokenStreamError, match=says):
        read(stream)


def test_numbers_reach_the_backend_as_the_server_wrote_them() -> None:
    row = Row(b"[12345678901234567890123, 1.10]")
    assert body_of(Header("q", ("A", "B"), ()), [row], RowFormat.ARRAY, batched=False) == row.text


def test_rows_are_arrays_or_objects_one_or_many() -> None:
    rows = [Row(b'[1,"a"]'), Row(b'[12345678901234567890123,"b"]')]
    assert json.loads(body_of(COLUMNS, rows[:1], RowFormat.OBJECT, batched=False)) == {"ID": 1, "NAME": "a"}
    assert json.loads(body_of(COLUMNS, rows, RowFormat.ARRAY, batched=True)) == [
        [1, "a"], [12345678901234567890123, "b"],
    ]  # fmt: skip
    assert json.loads(body_of(COLUMNS, rows, RowFormat.OBJECT, batched=True))[1] == {
        "ID": 12345678901234567890123,
        "NAME": "b",
    }


def test_a_query_has_the_servers_own_properties() -> None:
    query = ActiveQuery(
        r"select * from Q where id=\'1\';", offset="latest", scans_tables=True, fails_on_deserialization=False,
        properties={"auto.offset.reset": "earliest", "x": 1},
    )  # fmt: skip
    assert query.to_send() == (
        "select * from Q where id='1';",
        {
            "auto.offset.reset": "latest",
            "ksql.query.pull.table.scan.enabled": True,
            "fail.on.deserialization.error": False,
            "x": 1,
        },
    )
