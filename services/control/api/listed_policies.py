"""The calls about a policy that is a list of items: a decision about some of them, and a page of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from mesh.routing.listed_policy import PolicyMessage
from services.control.api import pages
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.policies import PolicyDecisions, RoutersBelow, Subject
from services.control.store.journal import Journal

P = TypeVar("P", bound=PolicyMessage)
M = TypeVar("M", bound=Message)


class ListedPolicy(Generic[P]):
    """The policy of one subject."""

    def __init__(self, subject: Subject[P], journal: Journal, routers_below: RoutersBelow) -> None:
        self._subject = subject
        self._journal = journal
        self._decisions = PolicyDecisions(subject, journal, routers_below)

    async def change(
        self, request: Any, decide: Callable[[P, Any], Any], kind: type[M], *, validate_only: bool = False
    ) -> M:
        """The response of this kind to a request with changes. `decide`: the event, given the policy and the changes.

        The response has the fields `revision` and `changed`.
        """
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        def response(revision: int, event: Any) -> M:
            return kind(revision=revision, changed=() if event is None else event.changes)

        async def decided() -> M:
            made = await self._decisions.decide(
                lambda policy: decide(policy, request.changes),
                who,
                lambda *each: stored_response(who, response(*each)),
                validate_only=validate_only,
            )
            return response(*made)

        return await once(kind, decided())

    async def page(self, request: Any, items: Callable[[P], Sequence[Any]]) -> tuple[Sequence[Any], str, int]:
        """A page of the items, the token of the next page, and the revision of the policy."""
        self._journal.require_loaded()
        listing = f"{self._subject.stream} {request.at_revision}"
        revision, start = pages.place_at_revision(listing, request.page_token) or (request.at_revision, 0)
        policy = await self._decisions.at(revision)
        page = pages.cut_at_revision(listing, items(policy), policy.revision, start, request.page_size)
        return *page, policy.revision

    async def at(self, revision: int) -> P:
        """The policy at a revision; 0 for now."""
        return await self._decisions.at(revision)
