"""How long a read waits, how far a consumer is, and the cursor that says so."""

import pytest

from services.sidecar.consuming.cursor import MAX_CURSOR_LENGTH, CursorError, cursor_of, positions_in
from services.sidecar.consuming.held_records import Unacknowledged
from services.sidecar.consuming.instance_values import UNKNOWN, InstanceOptions, ReadRequest
from services.sidecar.consuming.open_read import OpenRead
from services.sidecar.consuming.progress import Progress
from services.sidecar.formats import Format
from services.sidecar.records import Commit, Consumed, Partition

A, B = Partition("a", 0), Partition("b", 1)


def reading(timeout: float | None = None, read_timeout: float = 10.0, min_bytes: int = -1) -> OpenRead:
    options = InstanceOptions(Format.STRING, Format.JSON, read_timeout=read_timeout, min_bytes=min_bytes)
    started = OpenRead.of(ReadRequest(max_bytes=100, timeout=timeout), options, max_records=5)
    started.started = 0.0
    return started


@pytest.mark.parametrize(
    ("timeout", "assigned_at", "ends_at"),
    [
        (None, 0.0, 10.0),
        (3.0, 0.0, 3.0),
        (30.0, 0.0, 10.0),  # a request can only shorten what the instance says,
        (30.0, None, 30.0),  # except while the group is being joined;
        (30.0, 4.0, 14.0),  # then records get their time from there on
        (30.0, 25.0, 30.0),
        (3.0, None, 3.0),
        (None, -100.0, 10.0),
    ],
)
def test_until_when_a_read_waits(timeout: float | None, assigned_at: float | None, ends_at: float) -> None:
    assert reading(timeout).ends_at(assigned_at) == ends_at


@pytest.mark.parametrize(
    ("min_bytes", "records", "size", "satisfied"),
    [
        (-1, 0, 0, False),
        (-1, 1, 1, True),
        (50, 1, 49, False),
        (50, 2, 50, True),
        (1000, 3, 100, True),  # no more than the answer may have
        (50, 5, 5, True),
    ],
)
def test_when_a_read_has_enough(min_bytes: int, records: int, size: int, satisfied: bool) -> None:
    assert reading(min_bytes=min_bytes).is_satisfied_by(records, size) is satisfied


def test_a_stream_takes_no_more_than_its_window_has_room_for() -> None:
    batch = reading()
    batch.unacknowledged = Unacknowledged(max_records=2, max_bytes=100)
    assert batch.room == 2
    assert batch.is_satisfied_by(2, 2)


def consumed(place: Partition, offset: int) -> Consumed:
    return Consumed(place.topic, place.partition, offset, 0, None, None, [], 0)


def test_progress_goes_on_and_back() -> None:
    progress = Progress()
    progress.gave([consumed(A, 0), consumed(A, 1), consumed(B, 7)])
    assert (progress.given, progress.is_committed) == ({A: 2, B: 8}, False)
    progress.commits([Commit(A, 2), Commit(B, 8)])
    assert progress.is_committed
    progress.took_back([(A, 0), (A, 1)])
    assert progress.given == {A: 0, B: 8}
    progress.forget([A])
    assert (progress.given, progress.committed) == ({B: 8}, {B: 8})


@pytest.mark.parametrize(
    ("position", "committed", "bounds", "lag"),
    [
        (5, 3, (0, 10), 5),
        (None, 3, (0, 10), 7),
        (None, None, (4, 10), 6),
        (None, 3, (4, 10), 6),  # what is gone cannot be read any more
        (12, 3, (0, 10), 0),
        (5, 3, None, UNKNOWN),
    ],
)
def test_lag(position: int | None, committed: int | None, bounds: tuple[int, int] | None, lag: int) -> None:
    progress = Progress()
    progress.given.update({} if position is None else {A: position})
    progress.committed.update({} if committed is None else {A: committed})
    (status,) = progress.status([A], {} if bounds is None else {A: bounds})
    assert status.lag == lag
    assert (status.position, status.committed) == (
        UNKNOWN if position is None else position,
        UNKNOWN if committed is None else committed,
    )


def test_a_cursor_says_where_it_was() -> None:
    positions = {A: 0, Partition("a", 12): 2**63 - 1, B: 5}
    cursor = cursor_of(positions)
    assert positions_in(cursor) == positions
    assert cursor.isascii()
    assert "=" not in cursor


@pytest.mark.parametrize(
    "cursor",
    ["x", "e30x", "WzFd", "eyJhIjoxfQ", "eyJhIjp7IngiOjF9fQ", "eyJhIjp7IjAiOi0xfX0", "A" * MAX_CURSOR_LENGTH + "A"],
)
def test_what_is_no_cursor(cursor: str) -> None:
    with pytest.raises(CursorError):
        positions_in(cursor)
