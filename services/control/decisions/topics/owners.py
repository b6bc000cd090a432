"""Commands about the owners of topics."""

from __future__ import annotations

from collections.abc import Callable

from services.control.decisions.positions import appended
from services.control.domain.topics.owners import Owners, set_owner, stream_of
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer


class OwnerDecisions:
    """Commands about owners."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def known(self) -> Owners:
        """The owners now."""
        return self._journal.view.owners

    async def set(self, topic: str, owner: str, caller: Caller, answer: Callable[[int], StoredAnswer | None]) -> int:
        """The position of the event; of the earlier event if the owner is the same, and 0 if there was none."""
        view = await self._journal.first_time(caller)
        event = set_owner(view.owners, topic, owner)
        otherwise = view.owners[topic].revision if event is None and topic in view.owners else 0
        drafts = [] if event is None else [Draft(stream_of(topic), event)]
        return await appended(self._journal, drafts, otherwise, caller, view, lambda view: view.owners, answer)
