"""Adding and deleting ACLs, and setting their mode. One decision follows another, so none is lost to another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mesh.routing.codec import TABLE_FORMAT_OF_ACLS
from mesh.rpc import acls, events
from services.control.decisions.positions import appended, check_revision
from services.control.domain.acls.acls import ACLS, create_acls, delete_acls, set_mode
from services.control.domain.acls.matching import Matching
from services.control.domain.errors import NotAllowed
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

AclEvent = events.AclsCreated | events.AclsDeleted | events.AclModeSet
Answer = Callable[[int, AclEvent | None], StoredAnswer | None]
"""The answer to store for a request_id, given the revision of the policy, and the event (None: nothing changes)."""
Result = tuple[int, AclEvent | None]
NO_POLICY = acls.AclPolicy()


class AclDecisions:
    """Commands about ACLs. Each returns the revision of the policy, and the event; None if nothing changes."""

    def __init__(self, journal: Journal, routers_below: Callable[[int], Mapping[str, str]]) -> None:
        """`routers_below`: the connected routers that read only older formats of tables, with their versions."""
        self._journal = journal
        self._routers_below = routers_below
        self._one = asyncio.Lock()

    async def create(self, request: acls.CreateAclsRequest, caller: Caller, answer: Answer) -> Result:
        return await self._decide(
            lambda policy: create_acls(policy, request.acls), caller, answer, request.validate_only
        )

    async def delete(self, request: acls.DeleteAclsRequest, caller: Caller, answer: Answer) -> Result:
        return await self._decide(lambda policy: delete_acls(policy, request, Matching(policy).of), caller, answer)

    async def set_mode(self, request: acls.SetAclModeRequest, caller: Caller, answer: Answer) -> Result:
        return await self._decide(lambda policy: set_mode(policy, request), caller, answer, request.validate_only)

    async def at(self, revision: int) -> acls.AclPolicy:
        """The policy at a revision; 0 for now."""
        view = self._journal.view
        if revision:
            check_revision(view, revision, "at_revision")
        is_present = not revision or revision >= policy_of(view).revision
        return policy_of(view if is_present else await self._journal.view_at(revision))

    async def _decide(
        self,
        decide: Callable[[acls.AclPolicy], AclEvent | None],
        caller: Caller,
        answer: Answer,
        validate_only: bool = False,
    ) -> Result:
        async with self._one:
            await self._journal.first_time(caller)
            policy = policy_of(self._journal.view)
            event = await asyncio.to_thread(decide, policy)  # thousands of ACLs by hundreds of filters take a while
            if isinstance(event, events.AclModeSet) and event.mode != acls.ACL_MODE_OFF:
                self._check_understood()
            if validate_only:
                return policy.revision, event
            drafts = [] if event is None else [Draft(ACLS, event)]
            position = await appended(
                self._journal,
                drafts,
                policy.revision,
                caller,
                lambda view: policy_of(view).revision,
                lambda position: answer(position, event),
            )
            return position, event

    def _check_understood(self) -> None:
        """A router of an older release sends tables without ACLs: its gateways would let everybody in."""
        for name, version in sorted(self._routers_below(TABLE_FORMAT_OF_ACLS).items()):
            raise NotAllowed(
                "ROUTER_TOO_OLD",
                f"members/{name}",
                f"router {name!r} is of release {version or 'unknown'}, which passes over ACLs: its gateways would "
                "refuse nobody. Upgrade it, or stop it, then retry",
            )


def policy_of(view: MeshView) -> acls.AclPolicy:
    """The policy of a view; an empty one before the first decision about ACLs."""
    return view.state.effective.acl_policy or NO_POLICY
