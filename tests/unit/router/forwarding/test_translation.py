"""Every source offset leads to the target offset from which on nothing is missed and nothing is read twice."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from services.router.forwarding.points import MOST, Point, Points, Stretch
from services.router.forwarding.translation import Log, Sighting, translated


@dataclass
class Target:
    """A target partition that a mirror and others write to."""

    records: list[Sighting] = field(default_factory=list)
    end: int = 0
    points: Points = field(default_factory=Points)
    reads: int = 0

    def begin(self, position: int) -> None:
        """A new mirror, or one that an operator rewinds."""
        self.points.rewind(position, self.end)

    def copy(self, position: int, sources: list[int], *, keep: bool = True) -> None:
        """A transaction that began at this position, with its mark behind it."""
        for index, source in enumerate(sources):
            if index == 0:
                point = Point(position, self.end)
                self.points.note(point)
                if keep:
                    self.points.keep(point)
            self._add(source)
        self.end += 1

    def other(self) -> None:
        self._add(None)

    def forget_recent(self) -> None:
        """The worker starts anew."""
        self.points = Points(self.points.kept)

    @property
    def log(self) -> Log:
        return Log(self.end, self._read)

    def continues(self, source: int) -> list[int | None]:
        """What a group reads on the target that would have read `source` next."""
        at = translated(source, self.points.stretch(source), self.log)
        return [each.source for each in self.records if each.target >= at]

    def _add(self, source: int | None) -> None:
        self.records.append(Sighting(self.end, source))
        self.end += 1

    def _read(self, offset: int) -> Iterator[Sighting]:
        first = bisect_left(self.records, offset, key=lambda each: each.target)
        for each in self.records[first:]:
            self.reads += 1
            yield each


def test_each_offset_leads_to_its_own_record() -> None:
    target = Target()
    target.begin(0)
    target.copy(0, [0, 1, 2])
    target.copy(3, [3, 4])
    assert [target.continues(source)[:1] for source in range(5)] == [[0], [1], [2], [3], [4]]
    assert target.continues(5) == []


def test_a_record_that_was_left_out_leads_to_the_next_one() -> None:
    target = Target()
    target.begin(0)
    target.copy(0, [4, 9])
    assert [target.continues(source) for source in (0, 4, 5, 9, 10)] == [[4, 9], [4, 9], [9], [9], []]


def test_who_has_read_all_goes_on_at_what_others_wrote_since() -> None:
    target = Target()
    target.begin(0)
    target.other()
    target.copy(0, [0])
    assert target.continues(1) == []
    target.other()
    assert target.continues(1) == [None]
    target.copy(1, [1])
    assert target.continues(1) == [1]


def test_behind_a_rewind_the_new_pass_counts() -> None:
    target = Target()
    target.begin(0)
    target.copy(0, list(range(10)))
    target.begin(5)
    target.copy(5, list(range(5, 12)))
    assert target.continues(7) == [7, 8, 9, 10, 11]
    assert target.continues(3) == [*range(3, 10), *range(5, 12)], "what lies there twice is read twice"


def test_another_mirror_of_this_name_before_does_not_count() -> None:
    target = Target()
    for source in range(2000):
        target._add(source)
    target.begin(0)
    target.copy(0, [0, 1, 2])
    assert [target.continues(source) for source in (0, 2)] == [[0, 1, 2], [2]]


def test_a_long_log_is_searched_by_halves() -> None:
    target = Target()
    target.begin(0)
    for position in range(0, 200_000, 1000):
        target.copy(position, list(range(position, position + 1000)), keep=position == 0)
    target.forget_recent()
    assert target.continues(123_456)[:2] == [123_456, 123_457]
    target.reads = 0
    translated(77_777, target.points.stretch(77_777), target.log)
    assert target.reads < 600


def test_points_are_bounded_and_the_search_stays_exact() -> None:
    target = Target()
    target.begin(0)
    for position in range(0, 5000, 5):
        target.copy(position, list(range(position, position + 5)))
    target.forget_recent()
    assert len(target.points.kept) <= MOST
    assert all(target.continues(source)[0] == source for source in range(0, 5000, 37))


@given(st.data())
def test_whatever_was_written_no_record_is_missed_or_repeated(data: st.DataObject) -> None:
    """Transactions, gaps at the source, others' records and restarts in between, a rewind at the end."""
    target = Target()
    position = data.draw(st.integers(0, 5), "start")
    target.begin(position)
    copied: list[int] = []
    for _ in range(data.draw(st.integers(0, 12), "transactions")):
        for _ in range(data.draw(st.integers(0, 2), "others")):
            target.other()
        sources = sorted(data.draw(st.sets(st.integers(position, position + 30), max_size=20), "sources"))
        if sources:
            target.copy(position, sources, keep=data.draw(st.booleans(), "kept"))
            copied += sources
            position = sources[-1] + 1
        if data.draw(st.booleans(), "restart"):
            target.forget_recent()
    for source in range(position + 2):
        ours = [each for each in target.continues(source) if each is not None]
        assert ours == [each for each in copied if each >= source]

    back = data.draw(st.integers(0, position), "rewind")
    target.begin(back)
    again = [each for each in copied if each >= back]
    target.copy(back, again)
    target.forget_recent()
    for source in range(back, position + 2):
        ours = [each for each in target.continues(source) if each is not None]
        assert ours == [each for each in again if each >= source]


def test_the_stretch_is_narrowed_by_points_on_both_sides() -> None:
    points = Points([Point(0, 0, True), Point(100, 150), Point(200, 300)])
    assert points.stretch(120) == Stretch(150, 300)
    assert points.stretch(250) == Stretch(300, None)
