"""The progress of replays: the log, and the later reports of the members. Watchers read it from memory.

Members report as often as they like; the table of reports takes a part of the reports (`progress_interval`). A control
that takes the lead goes on from this table. The reports in between are not lost for long: the next report repeats
them. A list or a watcher of a replay with many partitions leaves them out, unless the request asks for them. Then all
partitions come once, and afterwards each partition that changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from prometheus_client import Gauge

from mesh.rpc import replays
from services.control.decisions.replays.followers import ReplayFollowers
from services.control.domain.errors import Unavailable
from services.control.domain.replays.assignment import Readers, readers_of, why_waiting
from services.control.domain.replays.course import Course, Key, key_of, without_partitions
from services.control.domain.replays.replays import ENDS, has_to_be_told, progress_interval, wanted_member
from services.control.domain.sidecars.commands import SIDECARS
from services.control.domain.sidecars.instances import Instances
from services.control.store.journal import Journal
from services.control.store.reports import Reports

MAX_WATCHERS = 200
FEW = 100
"""With so many partitions, a replay is always shown with them; with more, only if the request asks for them."""
GAP = 0.2
"""The shortest time in seconds between two checks of a watcher: faster changes come together."""
LOOK_EVERY = 1.0
"""The longest time in seconds between two checks: members come and go without an event."""
COMING_BACK = 30.0
"""Seconds for members to connect again to a control that has just taken the lead."""

watchers_gauge = Gauge("kafka_mesh_control_replay_watchers", "Calls that watch a replay.")


class ReplayProgress:
    """The last progress of each open replay."""

    def __init__(
        self,
        journal: Journal,
        reports: Reports,
        followers: ReplayFollowers,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.clock = clock
        self._journal = journal
        self._reports = reports
        self._followers = followers
        self._courses: dict[str, Course] = {}
        """The courses of open replays, by name."""
        self._written: dict[str, datetime] = {}
        """Replay -> time of its last stored report; if this process stored none, the time of its first check."""
        self._changed = asyncio.Event()
        self._watchers = 0
        self._readers: tuple[Instances, Readers] = ({}, {})
        """The instances, and their readers. They are kept because instances change seldom, and are many."""

    def note(self, replay: replays.Replay, partitions: Iterable[replays.ReplayPartition]) -> None:
        """Takes the partitions that changed, as the replay's member reports them."""
        self.course(replay).note(partitions)
        self.tell()

    def tell(self) -> None:
        """Wakes the watchers after a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def course(self, replay: replays.Replay) -> Course:
        """The progress of an open replay."""
        course = self._courses.get(replay.name)
        if course is None:
            self.keep_only(self._journal.view.replays.open.keys())
            course = self._courses[replay.name] = Course(replay, self._reports.known.progress.get(replay.name))
        course.follow(replay, self._reports.known.progress.get(replay.name))
        return course

    @property
    def partitions_open(self) -> int:
        """The number of known partitions of all open replays."""
        return sum(len(self.course(each).partitions) for each in self._journal.view.replays.open.values())

    def shown(self, replay: replays.Replay) -> replays.Replay:
        """A replay as it is now, and the reason why it waits, if it does."""
        if replay.state in ENDS:
            return replay
        course = self.course(replay)
        now = self._without_partitions(replay)
        now.partitions.extend(course.in_order())
        return now

    def in_brief(self, replay: replays.Replay) -> replays.Replay:
        """The same as `shown`; without partitions, if they are many."""
        if replay.state in ENDS:
            return replay if len(replay.partitions) <= FEW else without_partitions(replay)
        return self.shown(replay) if len(self.course(replay).partitions) <= FEW else self._without_partitions(replay)

    def to_be_written(self, replay: replays.Replay) -> list[replays.ReplayPartition]:
        """The partitions to store now; empty while a further report would be too early."""
        since, course = self._written.setdefault(replay.name, self.clock()), self.course(replay)
        is_plan = not replay.partitions and replay.name not in self._reports.known.progress
        if not is_plan and self.clock() - since < progress_interval(replay, len(course.partitions), self.clock()):
            return []
        return course.unwritten

    def written(self, name: str) -> None:
        self._written[name] = self.clock()

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets the replays that have ended."""
        self._courses = {name: course for name, course in self._courses.items() if name in names}
        self._written = {name: time for name, time in self._written.items() if name in names}

    def load(self) -> Mapping[str, int]:
        """Member -> the number of its open replays."""
        found: dict[str, int] = {}
        for replay in self._journal.view.replays.open.values():
            member = replay.member.removeprefix(SIDECARS)
            found[member] = found.get(member, 0) + 1
        return found

    def readers(self) -> Readers:
        """Sidecar -> its reactive consumers."""
        instances = self._reports.known.instances
        if self._readers[0] is not instances:
            self._readers = (instances, readers_of(instances))
        return self._readers[1]

    async def watch(self, name: str, *, partitions: bool = False) -> AsyncIterator[replays.Replay]:
        """The replay as it is, and after each change; stops at its end. `partitions`: also the changed partitions."""
        if self._watchers >= MAX_WATCHERS:
            raise Unavailable("TOO_MANY_WATCHERS", f"{MAX_WATCHERS} calls watch replays here: retry later")
        self._watchers += 1
        watchers_gauge.set(self._watchers)
        told: dict[Key, replays.ReplayPartition] = {}
        try:
            last = None
            while True:
                changed, replay = self._changed, self._journal.view.replays.get(name)
                brief = self.in_brief(replay)
                news = self._news(replay, told) if partitions and not brief.partitions else []
                if brief != last or news:
                    yield _with(brief, news)
                    last = brief
                if replay.state in ENDS:
                    return
                await asyncio.sleep(GAP)
                await self._until(changed)
        finally:
            self._watchers -= 1
            watchers_gauge.set(self._watchers)

    async def with_plan(self, name: str, seconds: float) -> replays.Replay:
        """The replay once its plan is known, for a dry run once it has ended; after `seconds`, as it then is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._has_plan(self._journal.view.replays.get(name)):
                    await self._until(self._changed)
        return self.shown(self._journal.view.replays.get(name))

    async def _until(self, changed: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await changed.wait()

    def _has_plan(self, replay: replays.Replay) -> bool:
        return replay.state in ENDS or (bool(self.course(replay).partitions) and not replay.spec.dry_run)

    def _without_partitions(self, replay: replays.Replay) -> replays.Replay:
        """An open replay with the totals of its progress, and the reason why it waits."""
        now = without_partitions(replay)
        if has_to_be_told(replay):
            now.description = self._waits_for(replay)
            totals = self.course(replay).totals
            if totals.partitions:
                now.totals.CopyFrom(totals)
        return now

    def _news(self, replay: replays.Replay, told: dict[Key, replays.ReplayPartition]) -> list[replays.ReplayPartition]:
        """Partitions that differ from what the watcher got before."""
        known = replay.partitions if replay.state in ENDS else self.course(replay).in_order()
        news = [each for each in known if told.get(key_of(each)) is not each and told.get(key_of(each)) != each]
        told |= {key_of(each): each for each in news}
        return news

    def _waits_for(self, replay: replays.Replay) -> str:
        if not replay.member:
            return why_waiting(replay, self._followers.candidates(), self.readers(), self.load())
        member = replay.member.removeprefix(SIDECARS)
        if member in {each.member for each in self._followers.candidates()}:
            return ""
        goes_on = (
            "it goes on when that is back" if wanted_member(replay.spec) else "another one that can goes on with it"
        )
        return f"{member} carries it out and does not follow its replays just now: {goes_on}"


def _with(replay: replays.Replay, partitions: Iterable[replays.ReplayPartition]) -> replays.Replay:
    if not partitions:
        return replay
    made = replays.Replay()
    made.CopyFrom(replay)
    made.partitions.extend(partitions)
    return made
