"""ReplayService: the replays that operators start, and the reports of the members that carry them out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from mesh import durations
from mesh.rpc import replays, replays_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once, time_left
from services.control.decisions.answers import stored_response
from services.control.decisions.members.members import short
from services.control.decisions.replays.commands import ReplayDecisions
from services.control.domain.errors import InvalidField
from services.control.domain.open_and_ended import newest_first
from services.control.domain.replays.assignment import MAX_RUNNING, USUAL_DESTINATIONS, Candidate
from services.control.domain.replays.replays import REPLAYS
from services.control.domain.sidecars.incarnations import incarnation_of
from services.control.domain.sidecars.instances import LONGEST_NAME, NUL
from services.control.store.journal import Journal

USUAL_WAIT_MS = 5_000
LONGEST_WAIT_MS = 60_000
MOST_DESTINATIONS = 20
MOST_RUNNING = 100
"""As many as can be open."""


class ReplayService(replays_grpc.ReplayServiceServicer):
    """See ReplayService in replays.proto."""

    def __init__(self, journal: Journal, decisions: ReplayDecisions) -> None:
        self._journal = journal
        self._decisions = decisions
        self._progress = decisions.progress

    async def StartReplay(self, request: replays.StartReplayRequest, context: Any) -> replays.Replay:
        self._journal.require_loaded()
        wait_ms = durations.whole_ms(request.wait)
        if not 0 <= wait_ms <= LONGEST_WAIT_MS:
            text = f"{wait_ms} ms is not from 0 to {LONGEST_WAIT_MS} ms; 0 means {USUAL_WAIT_MS} ms"
            raise InvalidField("wait", text)
        who = caller(request, request.request_id, request.reason)
        starting = self._decisions.start(request, who, lambda replay: stored_response(who, replay))
        replay = await once(replays.Replay, starting)
        if not replay.name:
            return replay
        wait = min((wait_ms or USUAL_WAIT_MS) / 1000, time_left())
        return await self._progress.with_plan(replay.name, wait)

    async def GetReplay(self, request: replays.GetReplayRequest, context: Any) -> replays.Replay:
        self._journal.require_loaded()
        shapes.id_of(REPLAYS, request.name)
        return self._progress.shown(self._journal.view.replays.get(request.name))

    async def ListReplays(self, request: replays.ListReplaysRequest, context: Any) -> replays.ListReplaysResponse:
        self._journal.require_loaded()
        found = self._journal.view.replays.newest(open_only=request.open_only)
        listing = f"replays {request.open_only}"
        page, token = pages.cut(
            listing, found, [newest_first(each) for each in found], request.page_size, request.page_token
        )
        return replays.ListReplaysResponse(replays=map(self._progress.in_brief, page), next_page_token=token)

    async def WatchReplay(self, request: replays.WatchReplayRequest, context: Any) -> AsyncIterator[replays.Replay]:
        self._journal.require_loaded()
        shapes.id_of(REPLAYS, request.name)
        async for replay in self._progress.watch(request.name, partitions=request.partitions):
            yield replay

    async def CancelReplay(self, request: replays.CancelReplayRequest, context: Any) -> replays.Replay:
        self._journal.require_loaded()
        shapes.id_of(REPLAYS, request.name)
        who = caller(request, request.request_id, request.reason)
        cancelling = self._decisions.cancel(request.name, who, lambda replay: stored_response(who, replay))
        return await once(replays.Replay, cancelling)

    async def FollowReplays(self, request: replays.FollowReplaysRequest, context: Any) -> AsyncIterator[replays.Replay]:
        self._journal.require_loaded()
        member = _member(request.member)
        incarnation = incarnation_of(request.incarnation)
        if len(request.destinations) > MOST_DESTINATIONS:  # one that this release does not know is no error
            raise InvalidField("destinations", f"{len(request.destinations)} are more than {MOST_DESTINATIONS}")
        if not 0 <= request.max_running <= MOST_RUNNING:
            raise InvalidField("max_running", f"{request.max_running} is not from 0 ({MAX_RUNNING}) to {MOST_RUNNING}")
        destinations = frozenset(request.destinations) or USUAL_DESTINATIONS
        candidate = Candidate(member, destinations, request.max_running or MAX_RUNNING)
        async for replay in self._decisions.followers.follow(candidate, incarnation, self._progress.shown):
            yield replay

    async def ReportReplay(self, request: replays.ReportReplayRequest, context: Any) -> replays.ReportReplayResponse:
        self._journal.require_loaded()
        shapes.id_of(REPLAYS, request.name)
        await self._decisions.report(request, _member(request.member), caller(request))
        return replays.ReportReplayResponse()


def _member(name: str) -> str:
    """The member's name without "members/"."""
    member = short(name)
    if not 1 <= len(member) <= LONGEST_NAME or NUL in member:
        raise InvalidField("member", f"needs 1 to {LONGEST_NAME} characters")
    return member
