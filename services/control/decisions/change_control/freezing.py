"""Freezing and thawing the mesh. Both don't wait for running changes, which end as they would have ended."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message

from services.control.decisions.positions import appended
from services.control.domain.change_control.freezing import FREEZE_STREAM, freeze, thaw
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

Answer = Callable[[int], StoredAnswer | None]
"""The answer to store for a request_id, given the position of the event."""


class Freezing:
    """Commands about the freeze switch."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def freeze(self, caller: Caller, answer: Answer) -> int:
        """The position of the event; of the earlier event if the mesh is frozen already."""
        view = await self._journal.first_time(caller)
        event = freeze(view.frozen, caller.reason)
        return await self._append(event, view.frozen.position if view.frozen else 0, caller, view, answer)

    async def thaw(self, caller: Caller, answer: Answer) -> int:
        """The position of the event; 0 if the mesh is not frozen."""
        view = await self._journal.first_time(caller)
        return await self._append(thaw(view.frozen), 0, caller, view, answer)

    async def _append(
        self, payload: Message | None, otherwise: int, caller: Caller, view: MeshView, answer: Answer
    ) -> int:
        drafts = [] if payload is None else [Draft(FREEZE_STREAM, payload)]
        return await appended(self._journal, drafts, otherwise, caller, view, _frozen_at, answer)


def _frozen_at(view: MeshView) -> int:
    return view.frozen.position if view.frozen else 0
