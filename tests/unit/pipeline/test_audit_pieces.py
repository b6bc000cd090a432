"""Events go through Spark many to a row, and come out as they were, each where it belongs."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.unit.pipeline.told import event, events

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

NOW = datetime.fromtimestamp(int(time.time()), UTC)
BEFORE = NOW - timedelta(days=3)


def alone(*pieces: Any) -> Any:
    """As Spark hands them on, some rows at a time."""
    return pyarrow.Table.from_batches(pieces).select(["events"]).combine_chunks().to_batches()[0]


def test_what_the_driver_knows_of_a_piece_stands_beside_its_events() -> None:
    from services.pipeline.auditing.pieces import EVENTS, piece_of

    ms = int(NOW.timestamp() * 1000)
    batch = events(event(1, NOW), b"boom", event(2, BEFORE), times_ms=[ms, None, ms - 5])
    [row] = piece_of(batch, "audit", 3).drop_columns([EVENTS]).to_pylist()
    assert row == {
        "source_topic": "audit", "source_partition": 3, "records": 3, "malformed": 1, "newest": NOW,
        "days": [NOW.date(), BEFORE.date()],
    }  # fmt: skip


def test_a_piece_of_nothing_that_is_well_has_no_days_and_may_have_no_time() -> None:
    from services.pipeline.auditing.pieces import EVENTS, piece_of

    [row] = piece_of(events(b"boom", b"{}"), "audit", 3).drop_columns([EVENTS]).to_pylist()
    assert (row["records"], row["malformed"], row["newest"], row["days"]) == (2, 2, None, [])


@pytest.mark.parametrize(
    ("first_day", "expected"), [(None, [1, 2, 3]), (NOW.date(), [1, 3]), (NOW.date() + timedelta(days=9), [])]
)
def test_events_of_several_pieces_come_out_as_they_were_from_a_day_on(
    first_day: date | None, expected: list[int]
) -> None:
    from services.pipeline.auditing.pieces import piece_of, well

    one, other = events(event(1, NOW), b"boom", event(2, BEFORE)), events(event(3, NOW))
    given = iter([alone(piece_of(one, "audit", 3), piece_of(other, "audit", 3)), alone(piece_of(one, "audit", 3))])
    columns = ("event_id", "time")
    found = [row for batch in well(columns, first_day, given) for row in batch.to_pylist()]
    times = {1: NOW, 2: BEFORE, 3: NOW}
    assert found == [
        {"event_id": f"{number:08x}-0000-0000-0000-000000000000", "time": times[number]}
        for number in [*expected, *(each for each in expected if each != 3)]
    ]


def test_what_is_malformed_comes_out_with_its_reason_and_nothing_else_does() -> None:
    from services.pipeline.auditing.pieces import malformed, piece_of

    given = iter([alone(piece_of(events(event(1, NOW), b"boom"), "audit", 3))])
    [row] = [row for batch in malformed(("source_offset", "problem", "raw_value"), given) for row in batch.to_pylist()]
    assert row == {"source_offset": 1, "problem": "it is no JSON object", "raw_value": b"boom"}
