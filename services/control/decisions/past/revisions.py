"""The mesh at an earlier revision or time, from PostgreSQL; the last few views stay in memory."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.past.revisions import mesh_of, require_past
from services.control.domain.rules.edits import Rules
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.view import MeshView
from services.control.store.database import Database
from services.control.store.journal import Journal
from services.control.store.past import PastStore

REMEMBERED = 8
"""Views in memory; a view of 10,000 rules is about 10 MB."""


class Past:
    """Questions about earlier revisions. A change with a rollout counts from its decision on, if it switched."""

    def __init__(self, journal: Journal, database: Database) -> None:
        self._journal = journal
        self.store = PastStore(database)
        self._views: OrderedDict[int, MeshView] = OrderedDict()

    async def view_at(self, revision: int, field: str = "revision") -> MeshView:
        """The mesh right after the event at this position, without consumer instances and schedules."""
        require_past(revision, self._journal.view.position, field)
        known = self._views.get(revision)
        if known is not None:
            self._views.move_to_end(revision)
            return known
        pending = self._journal.view.rollout
        view = mesh_of(revision, await self.store.rules_at(revision), await self.store.last_of_aggregates(revision))
        if pending is None or pending.position > revision:  # the pending change may still count for this revision
            self._views[revision] = view
            while len(self._views) > REMEMBERED:
                self._views.popitem(last=False)
        return view

    async def revision_at(self, time: datetime) -> int:
        """The position of the last event at or before a time."""
        position = await self.store.position_at(time)
        if not position:
            first = await self.store.time_of(1)
            when = "nothing was decided yet" if first is None else f"the first decision is of {first.isoformat()}"
            raise InvalidField("time", f"{time.isoformat()} is before all that is known: {when}")
        return position

    async def time_of(self, revision: int) -> datetime | None:
        return await self.store.time_of(revision)

    async def reverted(self, rules: RuleSet, revision: int) -> RuleSetDecision:
        """Decides to put the rules of a revision in force again."""
        require_past(revision, self._journal.view.position)
        return rules.bring_back(await self._rules_at(revision), revision)

    async def undone(self, rules: RuleSet) -> RuleSetDecision:
        """Decides to undo the last change of the rules."""
        if not rules.revision:
            raise NotAllowed("NOTHING_TO_REVERT", "rules", "the rules have never been changed: nothing to revert")
        before = await self.store.change_before(rules.revision) or rules.revision - 1
        return rules.bring_back(await self._rules_at(before), before)

    async def _rules_at(self, revision: int) -> Rules:
        versions = sorted(await self.store.rules_at(revision), key=lambda each: each[0].rank)
        return tuple(version.rule for version, _ in versions)
