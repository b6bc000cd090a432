"""Setting and removing quotas. One decision follows another, so none is lost to another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mesh.routing.codec import TABLE_FORMAT_OF_QUOTAS
from mesh.rpc import events, quotas
from services.control.decisions.positions import appended, check_revision
from services.control.domain.errors import NotAllowed
from services.control.domain.quotas.quotas import QUOTAS, change_quotas
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

Answer = Callable[[int, events.QuotasChanged | None], StoredAnswer | None]
"""The answer to store for a request_id, given the revision of the policy, and the event (None: nothing changes)."""
Result = tuple[int, events.QuotasChanged | None]
NO_POLICY = quotas.QuotaPolicy()


class QuotaDecisions:
    """Commands about quotas."""

    def __init__(self, journal: Journal, routers_below: Callable[[int], Mapping[str, str]]) -> None:
        """`routers_below`: the connected routers that read only older formats of tables, with their versions."""
        self._journal = journal
        self._routers_below = routers_below
        self._one = asyncio.Lock()

    async def change(self, request: quotas.ChangeQuotasRequest, caller: Caller, answer: Answer) -> Result:
        """Returns the revision of the policy, and the event; None if nothing changes."""
        async with self._one:
            await self._journal.first_time(caller)
            policy = policy_of(self._journal.view)
            event = await asyncio.to_thread(change_quotas, policy, request.changes)  # thousands of quotas take a while
            if event is not None:
                self._check_understood()
            drafts = [] if event is None else [Draft(QUOTAS, event)]
            position = await appended(
                self._journal,
                drafts,
                policy.revision,
                caller,
                lambda view: policy_of(view).revision,
                lambda position: answer(position, event),
            )
            return position, event

    async def at(self, revision: int) -> quotas.QuotaPolicy:
        """The policy at a revision; 0 for now."""
        view = self._journal.view
        if revision:
            check_revision(view, revision, "at_revision")
        is_present = not revision or revision >= policy_of(view).revision
        return policy_of(view if is_present else await self._journal.view_at(revision))

    def _check_understood(self) -> None:
        """A router of an older release sends tables without quotas: its gateways would throttle nobody."""
        for name, version in sorted(self._routers_below(TABLE_FORMAT_OF_QUOTAS).items()):
            raise NotAllowed(
                "ROUTER_TOO_OLD",
                f"members/{name}",
                f"router {name!r} is of release {version or 'unknown'}, which passes over quotas: its gateways would "
                "throttle nobody. Upgrade it, or stop it, then retry",
            )


def policy_of(view: MeshView) -> quotas.QuotaPolicy:
    """The policy of a view; an empty one before the first decision about quotas."""
    return view.state.effective.quota_policy or NO_POLICY
