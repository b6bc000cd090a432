"""The last events in memory: how many and how large they may be, and which of them are given."""

from __future__ import annotations

import pytest

from mesh.rpc import events
from services.control.store import recent
from services.control.store.log import Entry
from services.control.store.recent import RecentEvents


def entry(position: int, size: int = 10, stream: str = "rules", version: int = 0) -> Entry:
    event = events.Event(position=position, stream=stream, stream_version=version or position)
    return Entry(event, b"x" * size)


def positions(known: RecentEvents) -> list[int]:
    return [event.position for event in known]


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_EVENTS", 3)
    known = RecentEvents()
    known.extend(entry(position) for position in range(1, 6))
    assert positions(known) == [3, 4, 5]


def test_the_oldest_go_when_they_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_BYTES", 100)
    known = RecentEvents()
    known.extend([entry(1, 60), entry(2, 30), entry(3, 30), entry(4, 40)])
    assert positions(known) == [2, 3, 4]
    known.extend([entry(5, 1000)])
    assert positions(known) == [5]


def test_events_after_a_position_are_given_as_far_as_they_are_here() -> None:
    known = RecentEvents()
    assert known.after(0, 10) is None
    known.extend(entry(position) for position in range(4, 9))
    assert known.after(2, 10) is None
    found = known.after(4, 2)
    assert found is not None
    assert [event.position for event, _ in found] == [5, 6]
    assert known.after(8, 10) == []


def test_the_version_of_a_stream_is_known_while_its_last_event_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_EVENTS", 2)
    known = RecentEvents()
    known.extend([entry(1, stream="a", version=1), entry(2, stream="b", version=7), entry(3, stream="a", version=2)])
    assert [known.version(stream) for stream in "abc"] == [2, 7, None]
    known.extend([entry(4, stream="c", version=1)])
    assert [known.version(stream) for stream in "abc"] == [2, None, 1]
