"""What `kafka-mesh verify-log` finds in a log, and what it puts it down to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from mesh.event_log import Chain
from mesh.rpc import events, routing
from services.control.store import schema
from services.control.store.log import columns_of
from services.control.store.verification import LogCheck, PublishedLog, StoredEvent, differing_rows

LENGTH = 6


def row(event: events.Event) -> StoredEvent:
    columns: dict[str, Any] = columns_of(event)
    return StoredEvent(**columns, body=event.SerializeToString(deterministic=True))


def log(*, unchained: int = 0) -> tuple[list[StoredEvent], Chain]:
    """Clusters c1 to c6 are registered; the first ones by a release that knew no chain."""
    rows: list[StoredEvent] = []
    chain = Chain()
    for position in range(1, LENGTH + 1):
        name = f"c{position}"
        cluster = routing.UpstreamCluster(spec=routing.ClusterSpec(cluster_name=name), ordinal=position)
        event = events.Event(
            position=position,
            stream=f"clusters/{name}",
            stream_version=1,
            actor="ada",
            previous_hash=b"" if position <= unchained else chain.hash,
            cluster_registered=events.ClusterRegistered(cluster=cluster),
        )
        rows.append(row(event))
        chain = chain.after(event, rows[-1].body)
    return rows, chain


def changed(stored: StoredEvent, change: Callable[[events.Event], object]) -> StoredEvent:
    event = events.Event.FromString(stored.body)
    change(event)
    return row(event)


def by_mallory(event: events.Event) -> None:
    event.actor = "mallory"


def of_another_past(event: events.Event) -> None:
    event.actor, event.previous_hash = "mallory", b"another"


def found(rows: list[StoredEvent], head: Chain) -> list[str]:
    check = LogCheck()
    differences = [str(each) for stored in rows for each in check.read(stored)]
    return differences + [str(each) for each in check.end(head)]


def test_a_log_that_nobody_touched_differs_nowhere() -> None:
    assert found(*log()) == []
    assert found(*log(unchained=3)) == []


@pytest.mark.parametrize("position", range(1, LENGTH))
def test_a_changed_event_is_named_by_the_one_after_it(position: int) -> None:
    rows, head = log()
    rows[position - 1] = changed(rows[position - 1], by_mallory)
    assert found(rows, head) == [f"event {position}: was changed: event {position + 1} holds another hash of it"]


def test_a_changed_last_event_is_named_by_the_end_that_is_kept_beside_the_log() -> None:
    rows, head = log()
    rows[-1] = changed(rows[-1], by_mallory)
    assert found(rows, head) == ["event 6: was changed: log_head holds another hash of it"]


def test_an_event_that_lies_about_the_one_before_is_the_changed_one() -> None:
    rows, head = log()
    rows[2] = changed(rows[2], of_another_past)
    assert found(rows, head) == [
        "event 3: was changed: event 4 holds another hash of it, and it one of the event before"
    ]


def test_what_was_written_before_there_was_a_chain_is_covered_too() -> None:
    rows, head = log(unchained=3)
    rows[0] = changed(rows[0], by_mallory)
    assert found(rows, head) == ["one of the events 1 to 3: was changed: event 4 holds another hash of it"]


def test_a_missing_event_is_named() -> None:
    rows, head = log()
    del rows[2]
    assert found(rows, head) == ["event 4: follows event 2: 1 event is missing"]


def test_an_end_that_is_missing_is_named() -> None:
    rows, head = log()
    assert found(rows[:-1], head) == ["log_head: says that the log ends at 6; it ends at 5"]


def test_columns_that_tell_another_story_than_the_event_are_named() -> None:
    rows, head = log()
    rows[1] = replace(rows[1], actor="mallory", time=rows[1].time.replace(year=1999, tzinfo=UTC))
    actor, time = sorted(found(rows, head))
    assert actor == "event 2: actor is 'mallory'; by the log it is 'ada'"
    assert time.startswith("event 2: time is datetime.datetime(1999")


def test_bytes_that_are_no_event_end_the_folding_and_not_the_check() -> None:
    rows, head = log()
    rows[1] = replace(rows[1], body=b"\xff\xff")
    rows[4] = changed(rows[4], by_mallory)
    said = found(rows, head)
    assert said[0].startswith("event 2: its bytes are no event")
    assert said[-1] == "event 5: was changed: event 6 holds another hash of it"


def test_rows_are_compared_by_key_and_column() -> None:
    check = LogCheck()
    rows, _ = log()
    for stored in rows[:3]:
        assert not list(check.read(stored))
    wanted = check.rows()[schema.clusters]
    c1, c2, c3 = wanted.values()
    stored_rows = [c1, {**c2, "ordinal": 7}, {**c3, "name": "c9"}]
    assert [str(each) for each in differing_rows(schema.clusters, wanted, stored_rows)] == [
        "clusters c2: ordinal is 7; by the log it is 2",
        "clusters c3: is missing; the log has it",
        "clusters c9: is not in the log",
    ]


def published(*bodies: bytes) -> tuple[PublishedLog, list[str]]:
    log_there = PublishedLog()
    said = [str(each) for offset, body in enumerate(bodies) for each in log_there.read(offset, body)]
    return log_there, said


def test_events_that_were_published_twice_are_no_difference() -> None:
    bodies = [stored.body for stored in log()[0]]
    there, said = published(*bodies[:3], *bodies[1:])
    assert (there.position, said) == (LENGTH, [])


def test_what_was_published_otherwise_is_named() -> None:
    rows, _ = log()
    bodies = [stored.body for stored in rows]
    forged = changed(rows[1], by_mallory).body
    there, said = published(bodies[0], forged, bodies[1], bodies[4])
    assert said == [
        "mesh.events, offset 2: event 2 is another one than before",
        "mesh.events, offset 3: event 5 follows event 2: 2 events are missing",
    ]
    assert [str(each) for stored in rows[:2] for each in there.compare(stored)] == [
        "event 2: mesh.events has another one"
    ]
    assert [str(each) for each in there.end(4)] == ["mesh.events: goes on to event 5; the log ends at 4"]


def test_an_event_that_says_what_none_can_say_is_named() -> None:
    rows, head = log()
    event = events.Event.FromString(rows[2].body)
    event.time.nanos = -1
    rows[2] = replace(rows[2], body=event.SerializeToString(deterministic=True))
    said = found(rows, head)
    assert said[0].startswith("event 3: says what no event can say: ValueError")
    assert said[1] == "event 3: was changed: event 4 holds another hash of it"
