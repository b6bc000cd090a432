"""Granting and revoking roles, and bringing back the grants of an earlier revision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from google.protobuf.message import Message

from mesh.rpc import grants
from services.control.decisions.positions import appended, check_revision
from services.control.domain.access.grants import Grants, bring_back, grant, revoke, stream_of
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

Answer = Callable[[int], StoredAnswer | None]
"""The answer to store for a request_id, given the position of the event."""


class AccessDecisions:
    """Commands about grants."""

    def __init__(self, journal: Journal, first_admins: Collection[str]) -> None:
        self._journal = journal
        self._first_admins = frozenset(first_admins)

    async def grant(self, request: grants.GrantRoleRequest, caller: Caller, answer: Answer) -> int:
        """The position of the event; of the earlier event if the principal has this grant."""
        view = await self._journal.first_time(caller)
        event = grant(view.grants, request.grant, in_addition=request.in_addition)
        principal = request.grant.principal
        if event is None:
            same = [each for each in view.grants[principal].grants if each.role == request.grant.role]
            return await self._append(principal, [], max(each.revision for each in same), caller, view, answer)
        return await self._append(principal, [event], 0, caller, view, answer)

    async def revoke(self, request: grants.RevokeRoleRequest, caller: Caller, answer: Answer) -> int:
        """The position of the event; 0 if the principal has no rights already."""
        view = await self._journal.first_time(caller)
        event = revoke(view.grants, request.principal, request.role, self._first_admins)
        return await self._append(request.principal, [] if event is None else [event], 0, caller, view, answer)

    async def revert(self, request: grants.RevertGrantsRequest, caller: Caller, answer: Answer) -> int:
        """The position of the last event; 0 if nothing changes."""
        view = await self._journal.first_time(caller)
        payloads = bring_back(view.grants, await self.at(request.to_revision, "to_revision"))
        drafts = [Draft(stream_of(_principal(payload)), payload) for payload in payloads]
        return await appended(self._journal, drafts, 0, caller, view, lambda view: view.grants, answer)

    async def at(self, revision: int, field: str) -> Grants:
        """The grants at a revision."""
        check_revision(self._journal.view, revision, field)
        return (await self._journal.view_at(revision)).grants

    @property
    def _known(self) -> Grants:
        return self._journal.view.grants

    async def _append(
        self,
        principal: str,
        payloads: Sequence[Message],
        otherwise: int,
        caller: Caller,
        view: MeshView,
        answer: Answer,
    ) -> int:
        drafts = [Draft(stream_of(principal), payload) for payload in payloads]
        return await appended(
            self._journal, drafts, otherwise, caller, view, lambda view: view.grants.get(principal), answer
        )


def _principal(payload: Message) -> str:
    return str(getattr(payload, "principal", "") or payload.grant.principal)  # type: ignore[attr-defined]
