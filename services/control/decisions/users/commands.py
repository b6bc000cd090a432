"""Setting, deleting and bringing back users. Verifiers go from the request to PostgreSQL, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from mesh.rpc import users as pb
from services.control.decisions.positions import check_revision
from services.control.domain.users.users import Users, delete_user, has_room, restore_user, set_user, stream_of
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.store.verifiers import UserVerifiers, kept, of_deleted, of_restored

Answer = Callable[[int], StoredAnswer | None]
"""The answer to store for a request_id, given the position of the event."""


class UserDecisions:
    """Commands about users. Each returns the position of its event."""

    def __init__(self, journal: Journal, verifiers: UserVerifiers) -> None:
        self._journal = journal
        self._verifiers = verifiers

    async def set(self, request: pb.SetUserRequest, caller: Caller, answer: Answer) -> int:
        view = await self._journal.first_time(caller)
        event = set_user(view.users, request.user, request.verifiers)
        verifiers = pb.ScramVerifiers(verifiers=request.verifiers)
        draft = Draft(stream_of(request.user), event, lambda new: kept(new, verifiers))
        return await self._append(request.user, draft, caller, view, answer)

    async def delete(self, request: pb.DeleteUserRequest, caller: Caller, answer: Answer) -> int:
        view = await self._journal.first_time(caller)
        event = delete_user(view.users, request.user)
        return await self._append(request.user, Draft(stream_of(request.user), event, of_deleted), caller, view, answer)

    async def restore(self, request: pb.RestoreUserRequest, caller: Caller, answer: Answer) -> int:
        view = await self._journal.first_time(caller)
        has_verifiers = await self._verifiers.has(request.user)
        event = restore_user(view.users, request.user, has_verifiers=has_verifiers)
        return await self._append(
            request.user, Draft(stream_of(request.user), event, of_restored), caller, view, answer
        )

    async def at(self, revision: int, field: str) -> Users:
        """The users at a revision; 0 for now."""
        if not revision:
            return self._known
        check_revision(self._journal.view, revision, field)
        return (await self._journal.view_at(revision)).users

    @property
    def _known(self) -> Users:
        return self._journal.view.users

    async def _append(self, name: str, draft: Draft, caller: Caller, view: MeshView, answer: Answer) -> int:
        new = await self._journal.append(
            [draft],
            caller,
            view,
            rests_on=lambda view: (view.users.find(name), has_room(view.users)),
            answer=lambda new, _: answer(new[-1].position),
        )
        return new[-1].position
