"""Adding and deleting ACLs, and setting their mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mesh.routing.policies import ACL_POLICY
from mesh.rpc import acls, events
from services.control.decisions.policies import PolicyDecisions, RoutersBelow, Subject
from services.control.domain.acls.acls import ACLS, create_acls, delete_acls, set_mode
from services.control.domain.acls.matching import Matching
from services.control.store.drafts import Caller
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

AclEvent = events.AclsCreated | events.AclsDeleted | events.AclModeSet
Answer = Callable[[int, AclEvent | None], StoredAnswer | None]
"""The answer to store for a request_id, given the revision of the policy, and the event (None: nothing changes)."""
Result = tuple[int, AclEvent | None]
SUBJECT: Final = Subject(
    ACLS,
    ACL_POLICY,
    "passes over ACLs: its gateways would refuse nobody",
)


class AclDecisions:
    """Commands about ACLs. Each returns the revision of the policy, and the event; None if nothing changes."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._policy = PolicyDecisions(SUBJECT, journal, routers_below)

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
        return await self._policy.at(revision)

    async def _decide(
        self,
        decide: Callable[[acls.AclPolicy], AclEvent | None],
        caller: Caller,
        answer: Answer,
        validate_only: bool = False,
    ) -> Result:
        return await self._policy.decide(
            decide, caller, answer, validate_only=validate_only, needs_readers=_needs_readers
        )


def _needs_readers(event: AclEvent) -> bool:
    return isinstance(event, events.AclModeSet) and event.mode != acls.ACL_MODE_OFF
