"""Commands about a policy that the routing table carries. One follows another, so none is lost to another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mesh.routing.listed_policy import PolicyMessage
from mesh.routing.policies import PolicyKind
from services.control.decisions.positions import appended, check_revision
from services.control.domain.errors import NotAllowed
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

P = TypeVar("P", bound=PolicyMessage)
E = TypeVar("E")

RoutersBelow = Callable[[int], Mapping[str, str]]
"""The connected routers that read only older formats of tables than this one, with their versions."""


@dataclass(frozen=True, slots=True)
class Subject(Generic[P]):
    """One kind of policy, as control decides about it."""

    stream: str
    kind: PolicyKind[P]
    passed_over: str
    """The fault of a router of an older release: "passes over quotas: its gateways would throttle nobody"."""

    def of(self, view: MeshView) -> P:
        """The policy of a view; an empty one before the first decision about it."""
        return self.kind.of(view.state.effective.policies)


class PolicyDecisions(Generic[P]):
    """Commands about one kind of policy."""

    def __init__(self, subject: Subject[P], journal: Journal, routers_below: RoutersBelow) -> None:
        self._subject = subject
        self._journal = journal
        self._routers_below = routers_below
        self._one = asyncio.Lock()

    async def decide(
        self,
        decide: Callable[[P], E | None],
        caller: Caller,
        answer: Callable[[int, E | None], StoredAnswer | None],
        *,
        validate_only: bool = False,
        needs_readers: Callable[[Any], bool] = lambda _: True,
    ) -> tuple[int, E | None]:
        """The revision of the policy, and the event; None if nothing changes.

        `answer`: the answer to store for a request_id, given these. `needs_readers`: whether all routers have to
        understand the policy after this event.
        """
        async with self._one:
            view = await self._journal.first_time(caller)
            policy = self._subject.of(view)
            event = await asyncio.to_thread(decide, policy)  # thousands of items take a while
            if event is not None and needs_readers(event):
                self._check_understood()
            if validate_only:
                return policy.revision, event
            message: Any = event
            drafts = [] if event is None else [Draft(self._subject.stream, message)]
            position = await appended(
                self._journal,
                drafts,
                policy.revision,
                caller,
                view,
                lambda view: self._subject.of(view).revision,
                lambda position: answer(position, event),
            )
            return position, event

    async def at(self, revision: int) -> P:
        """The policy at a revision; 0 for now."""
        view = self._journal.view
        if revision:
            check_revision(view, revision, "at_revision")
        is_present = not revision or revision >= self._subject.of(view).revision
        return self._subject.of(view if is_present else await self._journal.view_at(revision))

    def _check_understood(self) -> None:
        """A router of an older release sends tables without the policy."""
        for name, version in sorted(self._routers_below(self._subject.kind.table_format).items()):
            raise NotAllowed(
                "ROUTER_TOO_OLD",
                f"members/{name}",
                f"router {name!r} is of release {version or 'unknown'}, which {self._subject.passed_over}. Upgrade it, "
                "or stop it, then retry",
            )
