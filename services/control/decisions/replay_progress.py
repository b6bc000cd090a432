"""How far replays are: what the log says, and what their members have said since. Watched from memory.

Members tell as often as they like; the table of reports takes a part of it (`progress_interval`), and a control that
takes the lead goes on from there. What is between heals by itself: that control hears it with the next report. A replay
of many partitions is listed and watched without them, unless they are asked for: then all of them come once, and what
changes afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from prometheus_client import Gauge

from mesh.rpc import replays
from services.control.decisions.replay_followers import ReplayFollowers
from services.control.domain.errors import Unavailable
from services.control.domain.instances import Instances
from services.control.domain.replay_assignment import Readers, readers_of, why_waiting
from services.control.domain.replay_course import Course, Key, key_of, without_partitions
from services.control.domain.replays import ENDS, has_to_be_told, progress_interval, wanted_member
from services.control.domain.sidecar_commands import SIDECARS
from services.control.store.journal import Journal
from services.control.store.reports import Reports

MAX_WATCHERS = 200
FEW = 100
"""Partitions that are told wherever a replay is; more of them only where they are asked for."""
GAP = 0.2
"""Seconds between two looks of a watcher, at least: what comes faster comes together."""
LOOK_EVERY = 1.0
"""Seconds between two looks, at most: members come and go without an event."""
COMING_BACK = 30.0
"""Seconds that members may take to come back to a control that has just taken the lead."""

watchers_gauge = Gauge("control_replay_watchers", "Calls that watch a replay.")


class ReplayProgress:
    """The last word about each open replay."""

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
        """Of open replays."""
        self._written: dict[str, datetime] = {}
        """When a report of it was stored last; for one that this process has not seen begin, since it looks."""
        self._changed = asyncio.Event()
        self._watchers = 0
        self._readers: tuple[Instances, Readers] = ({}, {})
        """Of these instances: they change seldom, and are many."""

    def note(self, replay: replays.Replay, partitions: Iterable[replays.ReplayPartition]) -> None:
        """What a member says: partitions that changed."""
        self.course(replay).note(partitions)
        self.tell()

    def tell(self) -> None:
        """Something has changed that watchers look at."""
        self._changed.set()
        self._changed = asyncio.Event()

    def course(self, replay: replays.Replay) -> Course:
        """How far an open replay is."""
        course = self._courses.get(replay.name)
        if course is None:
            self.keep_only(self._journal.view.replays.open.keys())
            course = self._courses[replay.name] = Course(replay, self._reports.known.progress.get(replay.name))
        course.follow(replay, self._reports.known.progress.get(replay.name))
        return course

    @property
    def partitions_open(self) -> int:
        """Of all open replays."""
        return sum(len(self.course(each).partitions) for each in self._journal.view.replays.open.values())

    def shown(self, replay: replays.Replay) -> replays.Replay:
        """A replay as it is now, and what it waits for."""
        if replay.state in ENDS:
            return replay
        course = self.course(replay)
        now = self._without_partitions(replay)
        now.partitions.extend(course.in_order())
        return now

    def in_brief(self, replay: replays.Replay) -> replays.Replay:
        """The same; without partitions, where these are many."""
        if replay.state in ENDS:
            return replay if len(replay.partitions) <= FEW else without_partitions(replay)
        return self.shown(replay) if len(self.course(replay).partitions) <= FEW else self._without_partitions(replay)

    def to_be_written(self, replay: replays.Replay) -> list[replays.ReplayPartition]:
        """What should be stored now; nothing while that would be too often."""
        since, course = self._written.setdefault(replay.name, self.clock()), self.course(replay)
        is_plan = not replay.partitions and replay.name not in self._reports.known.progress
        if not is_plan and self.clock() - since < progress_interval(replay, len(course.partitions), self.clock()):
            return []
        return course.unwritten

    def written(self, name: str) -> None:
        self._written[name] = self.clock()

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets those that have ended."""
        self._courses = {name: course for name, course in self._courses.items() if name in names}
        self._written = {name: time for name, time in self._written.items() if name in names}

    def load(self) -> Mapping[str, int]:
        """How many open replays each member has."""
        found: dict[str, int] = {}
        for replay in self._journal.view.replays.open.values():
            member = replay.member.removeprefix(SIDECARS)
            found[member] = found.get(member, 0) + 1
        return found

    def readers(self) -> Readers:
        """Reactive consumers by their sidecar."""
        instances = self._reports.known.instances
        if self._readers[0] is not instances:
            self._readers = (instances, readers_of(instances))
        return self._readers[1]

    async def watch(self, name: str, *, partitions: bool = False) -> AsyncIterator[replays.Replay]:
        """The replay as it is, and after each change; ends with it. `partitions`: those that changed, too."""
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
        """The replay as soon as its plan is known, a dry run when it has ended; as it is after so many seconds."""
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
        """An open replay with how far it is, all together, and what it waits for."""
        now = without_partitions(replay)
        if has_to_be_told(replay):
            now.description = self._waits_for(replay)
            totals = self.course(replay).totals
            if totals.partitions:
                now.totals.CopyFrom(totals)
        return now

    def _news(self, replay: replays.Replay, told: dict[Key, replays.ReplayPartition]) -> list[replays.ReplayPartition]:
        """Partitions that are not as they were told."""
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
