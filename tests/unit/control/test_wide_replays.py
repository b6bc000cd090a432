"""A copy of thousands of partitions: told in brief, written down rarely and in parts, and small in what is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mesh.rpc import events, replays, reports
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.past.snapshots import view_to_bytes
from services.control.domain.replays import replays as module
from services.control.domain.replays.course import Course, totals_of, without_partitions
from services.control.domain.replays.replays import (
    MAX_COPIED,
    MAX_PARTITIONS,
    check_report,
    ended,
    progress_interval,
    progressed,
    started,
)
from services.control.domain.reports import Reported
from services.control.domain.view import MeshView, apply
from services.control.store.drafts import PAYLOADS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PARTITIONS = 5000
RUNNING, DONE = replays.REPLAY_STATE_RUNNING, replays.REPLAY_STATE_DONE
KAFKA_TAKES = 1_000_000
"""Bytes of an event."""


def part(number: int, position: int = 0, topic: str = "orders") -> replays.ReplayPartition:
    """Of a million records each."""
    return replays.ReplayPartition(
        topic=topic, partition=number, end_offset=1_000_000, position=position, records=position
    )


def parts(position: int = 0, count: int = PARTITIONS, topic: str = "orders") -> list[replays.ReplayPartition]:
    return [part(number, position, topic) for number in range(count)]


class Log:
    """A mesh's log, and what follows from it."""

    def __init__(self) -> None:
        self.view = MeshView()
        self.sizes: list[int] = []
        self.reported = Reported()
        self.report_sizes: list[int] = []

    def stores(self, name: str, course: Course, some: list[replays.ReplayPartition] | None = None) -> None:
        """As a control that leads does with what its member has said; `some` of it."""
        told = events.ReplayProgressed(name=name, partitions=some or course.unwritten, totals=course.totals)
        report = reports.Report(sequence=self.reported.sequence + 1, name=name, replay_progressed=told)
        self.report_sizes.append(report.ByteSize())
        self.reported = self.reported.after(report)
        course.follow(self.view.replays.get(name), self.reported.progress[name])

    def takes(self, *payloads: object) -> None:
        for payload in payloads:
            event = events.Event(position=self.view.position + 1)
            event.time.FromDatetime(NOON)
            getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)  # type: ignore[index]
            self.sizes.append(event.ByteSize())
            self.view = apply(self.view, event)

    def copies(self, name: str = "replays/1") -> str:
        """A copy that has a member."""
        spec = replays.ReplaySpec(
            ranges=[replays.ReplayRange(topic="orders")], topic=replays.ReplayToTopic(topic="again")
        )
        self.takes(started(self.view.replays, name, spec, "ada", "", NOON))
        self.takes(events.ReplayAssigned(name=name, member="members/p1"))
        return name


@pytest.fixture
def log() -> Log:
    return Log()


def said(name: str, partitions: list[replays.ReplayPartition]) -> replays.ReportReplayRequest:
    return replays.ReportReplayRequest(name=name, state=RUNNING, partitions=partitions)


def test_a_pipeline_may_have_thousands_of_partitions_and_a_sidecar_a_thousand(log: Log) -> None:
    name = log.copies()
    assert check_report(log.view.replays, said(name, parts(count=MAX_COPIED)), "p1") is not None
    with pytest.raises(InvalidField, match="10001 are more than 10000; make several replays"):
        check_report(log.view.replays, said(name, parts(count=MAX_COPIED + 1)), "p1")
    known = {("orders", number) for number in range(MAX_COPIED)}
    assert check_report(log.view.replays, said(name, parts(count=3)), "p1", known) is not None
    with pytest.raises(InvalidField, match="10001 are more"):
        check_report(log.view.replays, said(name, [part(0, topic="other")]), "p1", known)
    backend = replays.ReplaySpec(ranges=[replays.ReplayRange(topic="orders")], backend=replays.ReplayToBackend())
    log.takes(started(log.view.replays, "replays/2", backend, "ada", "", NOON))
    log.takes(events.ReplayAssigned(name="replays/2", member="members/s1"))
    with pytest.raises(InvalidField, match="1001 are more than 1000"):
        check_report(log.view.replays, said("replays/2", parts(count=MAX_PARTITIONS + 1)), "s1")


def test_all_that_is_open_has_a_bound(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN_PARTITIONS", 500)
    name = log.copies()
    last = log.copies("replays/last")
    with pytest.raises(NotAllowed, match="500 partitions are open, and 1 more are not possible"):
        check_report(log.view.replays, said(last, [part(0)]), "p1", partitions_open=500)
    known = {("orders", number) for number in range(100)}
    assert check_report(log.view.replays, said(name, [part(7, 400)]), "p1", known, 500) is not None


def test_what_its_member_says_changes_the_totals_and_is_unwritten_until_it_is_stored(log: Log) -> None:
    name = log.copies()
    course = Course(log.view.replays.get(name), None)
    course.note(parts())
    assert (course.totals.partitions, course.totals.offsets, course.totals.offsets_done) == (5000, 5_000_000_000, 0)
    log.stores(name, course)
    assert course.unwritten == []
    course.note([part(7, 1_000_000), part(8, 400)])
    course.note([part(8, 500)])
    assert course.unwritten == [part(7, 1_000_000), part(8, 500)]
    assert (course.totals.partitions_done, course.totals.records) == (1, 1_000_500)
    assert course.totals == totals_of(course.in_order())
    log.stores(name, course, [part(8, 500)])
    assert course.unwritten == [part(7, 1_000_000)]
    assert course.totals == totals_of(course.in_order())
    log.takes(*progressed(name, [part(9, 300)], course.totals))  # an event of an earlier release: reports are newer
    course.follow(log.view.replays.get(name), log.reported.progress[name])
    assert course.partitions["orders", 9] == part(9)
    assert course.unwritten == [part(7, 1_000_000)]


def test_a_control_that_takes_over_goes_on_from_what_is_stored(log: Log) -> None:
    name = log.copies()
    log.takes(*progressed(name, [part(1, 5), part(2, 5)], replays.ReplayTotals()))  # by an earlier release
    course = Course(log.view.replays.get(name), None)
    course.note([part(2, 10), part(3, 10)])
    log.stores(name, course)
    next_one = Course(log.view.replays.get(name), log.reported.progress[name])
    assert next_one.in_order() == [part(1, 5), part(2, 10), part(3, 10)]
    assert next_one.unwritten == []
    assert next_one.beyond(log.view.replays.get(name).partitions) == [part(2, 10), part(3, 10)]


def test_no_event_is_too_large_for_kafka(log: Log) -> None:
    name, longest = log.copies(), "t" * 249
    log.takes(*progressed(name, parts(999_999, MAX_COPIED, longest), replays.ReplayTotals()))
    assert len(log.sizes) > 3
    assert max(log.sizes) < KAFKA_TAKES * 0.7
    assert len(log.view.replays.get(name).partitions) == MAX_COPIED
    before = len(log.sizes)
    log.takes(*progressed(name, parts(1_000_000, MAX_COPIED), replays.ReplayTotals()))
    assert len(log.sizes) == before + 1


def test_a_day_of_it_is_a_megabyte_of_reports_and_less_of_log_and_of_snapshot(log: Log) -> None:
    name = log.copies()
    course = Course(log.view.replays.get(name), None)
    course.note(parts())
    log.stores(name, course)
    age, day, times = timedelta(), timedelta(days=1), 0
    while age < day:  # as many reports as are stored, each with what has come in between: 16 lanes, one after another
        age += progress_interval(log.view.replays.get(name), len(course.partitions), NOON + age)
        times += 1
        through = min(PARTITIONS, int(PARTITIONS * (age / day)))
        course.note([part(number, 1_000_000) for number in range(through)])
        course.note([part(number, 500_000) for number in range(through, min(through + 16, PARTITIONS))])
        log.stores(name, course)
    news = course.beyond(log.view.replays.get(name).partitions)
    *before, last = progressed(name, news, course.totals)
    log.takes(*before, ended(name, DONE, "all of it", last.partitions, course.totals))
    assert times < 20
    assert sum(log.report_sizes) < 1_000_000
    assert sum(log.sizes) < 500_000
    assert len(view_to_bytes(log.view)) < 500_000
    done = log.view.replays.get(name)
    assert (done.totals.partitions_done, done.totals.records) == (PARTITIONS, PARTITIONS * 1_000_000)
    assert without_partitions(done).ByteSize() < 200


def test_of_those_that_ended_the_last_are_kept_whole_and_the_others_in_brief(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 100_000)
    for number in range(40):
        name = log.copies(f"replays/{number}")
        log.takes(*progressed(name, parts(1_000_000, 500), replays.ReplayTotals()))
        log.takes(ended(name, DONE, ""))
    kept = list(log.view.replays.ended.values())
    whole = [bool(each.partitions) for each in kept]
    assert (len(kept), whole) == (40, sorted(whole))
    assert 1 < sum(whole) < 10
    assert sum(each.ByteSize() for each in kept) < 200_000
    assert {each.totals.partitions_done for each in kept} == {500}
