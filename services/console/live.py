"""Open pages that update themselves: server-sent events, by the viewer's own identity.

A stream looks at control every few seconds and says `changed` when the answer differs, or when ages on the page have
become old. The page then loads itself again. `trouble` says why nothing comes.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from google.protobuf.message import Message

from mesh.rpc import admin, drains, proposals, rehearsals, replays, standbys, topic_moves
from services.console.control import Caller, Stubs
from services.console.outcomes import CallError

LOOK_S = 2.0
REFRESH_S = 15.0
"""So old may "3 s ago" become."""
RATES_S = 9.0
"""Gateways report the rates of their clients as often."""
Look = Callable[[Caller], Awaitable[Message]]


async def _status(caller: Caller) -> Message:
    """Without times that change with every report."""
    status: admin.MeshStatus = await caller.call(caller.stubs.decisions.GetStatus, admin.GetStatusRequest())
    for member in status.members:
        member.ClearField("last_seen_time")
    for rule in status.record_rules:
        rule.progress.ClearField("report_time")
    return status


async def _replays(caller: Caller) -> Message:
    request = replays.ListReplaysRequest(page_size=100)
    found: Message = await caller.call(caller.stubs.replays.ListReplays, request)
    return found


async def _moves(caller: Caller) -> Message:
    request = topic_moves.ListTopicMovesRequest(page_size=100)
    found: topic_moves.ListTopicMovesResponse = await caller.call(caller.stubs.topic_moves.ListTopicMoves, request)
    for move in found.topic_moves:
        move.progress.ClearField("report_time")
    return found


async def _proposals(caller: Caller) -> Message:
    request = proposals.ListProposalsRequest(page_size=100)
    found: Message = await caller.call(caller.stubs.approvals.ListProposals, request)
    return found


_ONES: dict[str, tuple[Callable[[Stubs], Any], Callable[[str], Message]]] = {
    "drain": (lambda stubs: stubs.drains.GetDrain, lambda name: drains.GetDrainRequest(name=f"drains/{name}")),
    "move": (
        lambda stubs: stubs.topic_moves.GetTopicMove,
        lambda name: topic_moves.GetTopicMoveRequest(name=f"topicmoves/{name}"),
    ),
    "proposal": (
        lambda stubs: stubs.approvals.GetProposal,
        lambda name: proposals.GetProposalRequest(name=f"proposals/{name}"),
    ),
    "rehearsal": (
        lambda stubs: stubs.rehearsals.GetRehearsal,
        lambda name: rehearsals.GetRehearsalRequest(cluster_name=name),
    ),
    "replay": (lambda stubs: stubs.replays.GetReplay, lambda name: replays.GetReplayRequest(name=f"replays/{name}")),
    "standby": (
        lambda stubs: stubs.standbys.GetStandby,
        lambda name: standbys.GetStandbyRequest(name=f"standbys/{name}"),
    ),
}
_LISTS: dict[str, Look] = {
    "status": _status, "map": _status, "replays": _replays, "moves": _moves, "proposals": _proposals
}  # fmt: skip


def look_at(what: str) -> Look | None:
    """The names that a page may follow: those of `_LISTS`, and KIND/NAME with a kind of `_ONES`."""
    kind, _, name = what.partition("/")
    if kind not in _ONES or not name:
        return _LISTS.get(what)
    method, request = _ONES[kind]

    async def one(caller: Caller) -> Message:
        found: Message = await caller.call(method(caller.stubs), request(name))
        if isinstance(found, topic_moves.MoveWithRecords):
            found.progress.ClearField("report_time")
        return found

    return one


def refresh_of(what: str) -> float:
    """Seconds after which a page is loaded again although nothing has changed."""
    return RATES_S if what == "map" else REFRESH_S


async def follow(
    look: Look,
    caller: Caller,
    *,
    goes_on: Callable[[], bool],
    stopping: asyncio.Event,
    look_s: float = LOOK_S,
    refresh_s: float = REFRESH_S,
) -> AsyncIterator[str]:
    """Server-sent events, until the console stops or the viewer's session ends."""
    seen, told, trouble = b"", time.monotonic(), ""
    yield event("begun", "")
    while goes_on() and not stopping.is_set():
        try:
            found, problem = _digest(await look(caller)), ""
        except CallError as failure:
            found, problem = seen, str(failure)
        if problem != trouble:
            trouble = problem
            yield event("trouble", problem)
        now = time.monotonic()
        if not problem and seen and (found != seen or now - told >= refresh_s):
            told = now
            yield event("changed", "")
        seen = found
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), look_s)


def event(name: str, text: str) -> str:
    """One server-sent event; the text is HTML for the page."""
    return f"event: {name}\ndata: {html.escape(' '.join(text.split()))}\n\n"


def _digest(message: Message) -> bytes:
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()
