"""Connected members, and the replays that each member gets: the log names them, whichever replica wrote the event.

Theory of operation
1. A follower has no queue: it has a place in the open replays, and remembers the replays that it got. A slow follower
   costs nothing.
2. A member has one follower. Another follower takes its place in two cases. It may be of the same process: then the
   first connection has died, and nobody has noticed yet. Or it is of a younger process: then the older process's
   follower ends with ABORTED.
3. A member that follows is connected. When a member has stopped following, control remembers it for a while, and leaves
   its replays with it.
4. Members follow only the replica that leads, because the leader assigns replays. Another replica answers UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client import Gauge

from mesh.rpc import replays
from services.control.decisions.members.members import MAX_SIDECARS
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import Conflict, Unavailable
from services.control.domain.replays.assignment import SILENCE, Candidate
from services.control.domain.replays.replays import Replays
from services.control.domain.sidecars.commands import SIDECARS
from services.control.domain.sidecars.incarnations import Incarnation
from services.control.steady_clock import Clock, steady_clock
from services.control.store.journal import Journal

MAX_FOLLOWERS = MAX_SIDECARS
"""Sidecars and pipelines, as for orders."""

followers_gauge = Gauge("kafka_mesh_control_replay_followers", "Members that follow their replays here.")

Shown = Callable[[replays.Replay], replays.Replay]
"""A replay with the reports that are not in the log."""


@dataclass(eq=False, slots=True)
class _Follower:
    """One open stream of a member, or the memory of its last stream."""

    candidate: Candidate
    incarnation: Incarnation
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    left: datetime | None = None
    """The time when the stream ended."""


class ReplayFollowers:
    """Sends replays to members."""

    def __init__(self, journal: Journal, sidecars: Sidecars, clock: Clock = steady_clock) -> None:
        self.clock = clock
        self.on_change: Callable[[], None] = lambda: None
        """Called when a member comes or goes."""
        self._journal = journal
        self._sidecars = sidecars
        self._followers: dict[str, _Follower] = {}

    async def run(self) -> None:
        """Runs for ever: wakes the followers whose replays have changed."""
        known = Replays()
        while True:
            view = self._journal.view
            if view.replays is not known:
                for member in {replay.member.removeprefix(SIDECARS) for replay in view.replays.open.values()}:
                    self._wake(member)
                known = view.replays
            await self._journal.grown_beyond(view.position)

    async def follow(
        self, candidate: Candidate, incarnation: Incarnation, shown: Shown
    ) -> AsyncIterator[replays.Replay]:
        """The open replays of a member, then each replay that is new or cancelled.

        Ends when another follower of the member takes its place; with Conflict if that is of a younger process.
        """
        member = candidate.member
        follower = self._take_place(candidate, incarnation)
        given: set[tuple[str, bool]] = set()
        try:
            while self._followers.get(member) is follower:
                follower.woken.clear()
                self._journal.require_leading()
                self._sidecars.require_current(member, incarnation)
                mine = self._journal.view.replays.of_member(member)
                given &= {(replay.name, replay.cancelling) for replay in mine}
                for replay in mine:
                    if (replay.name, replay.cancelling) not in given:
                        given.add((replay.name, replay.cancelling))
                        yield shown(replay)
                await follower.woken.wait()
            self._require_youngest(member, incarnation)
        finally:
            follower.left = self.clock()
            self._tell()

    def lost_the_lead(self) -> None:
        """Ends all streams, so that members go to another replica."""
        for follower in self._followers.values():
            follower.woken.set()

    def candidates(self) -> list[Candidate]:
        """Connected members."""
        return [each.candidate for each in self._followers.values() if each.left is None]

    def is_there(self, member: str) -> bool:
        """Whether the member follows its replays, or has until a moment ago."""
        follower = self._followers.get(member)
        return follower is not None and (follower.left is None or self.clock() - follower.left <= SILENCE)

    def is_known(self, member: str) -> bool:
        return member in self._followers

    def _take_place(self, candidate: Candidate, incarnation: Incarnation) -> _Follower:
        member = candidate.member
        self._journal.require_leading()
        self._sidecars.require_current(member, incarnation)
        self._require_youngest(member, incarnation)
        before = self._followers.get(member)
        if before is None and len(self._followers) >= MAX_FOLLOWERS:
            self._make_room()
        follower = self._followers[member] = _Follower(candidate, incarnation)
        if before is not None:
            before.woken.set()
        self._tell()
        return follower

    def _require_youngest(self, member: str, incarnation: Incarnation) -> None:
        other = self._followers.get(member)
        if other is not None and incarnation < other.incarnation and self.is_there(member):
            text = f"a younger process of {member!r} follows its replays ({other.incarnation.text})"
            raise Conflict("SUPERSEDED", f"{text}; this one shall drop those that it carries out")

    def _make_room(self) -> None:
        gone = next((name for name, each in self._followers.items() if each.left is not None), None)
        if gone is None:
            raise Unavailable("TOO_MANY_FOLLOWERS", f"{MAX_FOLLOWERS} members follow their replays here: retry later")
        del self._followers[gone]

    def _wake(self, member: str) -> None:
        follower = self._followers.get(member)
        if follower is not None:
            follower.woken.set()

    def _tell(self) -> None:
        followers_gauge.set(len(self.candidates()))
        self.on_change()
