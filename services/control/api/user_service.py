"""UserService: users who log in to gateways with a password. No answer has a verifier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from mesh.rpc import users, users_grpc
from services.control.api import pages
from services.control.api.calls import caller, once_with_revision
from services.control.decisions.users.commands import UserDecisions
from services.control.domain.errors import Unknown
from services.control.domain.users.users import check_name, stream_of
from services.control.presentation.users import explanation
from services.control.store.journal import Journal

M = TypeVar("M", bound=Message)


class UserService(users_grpc.UserServiceServicer):
    """See UserService in users.proto."""

    def __init__(self, journal: Journal, decisions: UserDecisions) -> None:
        self._journal = journal
        self._decisions = decisions

    async def SetUser(self, request: users.SetUserRequest, context: Any) -> users.SetUserResponse:
        return await self._decide(users.SetUserResponse, request, self._decisions.set)

    async def DeleteUser(self, request: users.DeleteUserRequest, context: Any) -> users.DeleteUserResponse:
        return await self._decide(users.DeleteUserResponse, request, self._decisions.delete)

    async def RestoreUser(self, request: users.RestoreUserRequest, context: Any) -> users.RestoreUserResponse:
        return await self._decide(users.RestoreUserResponse, request, self._decisions.restore)

    async def _decide(self, kind: type[M], request: Any, decide: Callable[..., Awaitable[int]]) -> M:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(kind, who, lambda answer: decide(request, who, answer))

    async def ListUsers(self, request: users.ListUsersRequest, context: Any) -> users.ListUsersResponse:
        self._journal.require_loaded()
        present = (await self._decisions.at(request.at_revision, "at_revision")).present
        names = sorted(present)
        listing = f"users {request.at_revision}"
        page, token = pages.cut(
            listing, [present[each] for each in names], names, request.page_size, request.page_token
        )
        return users.ListUsersResponse(users=page, next_page_token=token)

    async def GetUser(self, request: users.GetUserRequest, context: Any) -> users.GetUserResponse:
        self._journal.require_loaded()
        check_name(request.user)
        found = (await self._decisions.at(request.at_revision, "at_revision")).find(request.user)
        if found is None:
            raise Unknown(stream_of(request.user), explanation(request.user, None))
        return users.GetUserResponse(user=found, explanation=explanation(request.user, found))
