"""UserVerifierService: users with their verifiers, for routers alone. The only way on which verifiers leave control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from mesh.rpc import users, users_grpc
from mesh.rpc.strangers import refuse_strangers
from mesh.user_tables import CONFIRMED_EVERY_S, pages
from services.control.domain.errors import Unavailable
from services.control.domain.users.users import Users
from services.control.store.journal import Journal
from services.control.store.verifiers import Found, UserVerifiers


class UserVerifierService(users_grpc.UserVerifierServiceServicer):
    """See UserVerifierService in users.proto."""

    def __init__(self, journal: Journal, verifiers: UserVerifiers) -> None:
        self._journal = journal
        self._verifiers = verifiers

    async def FollowVerifiers(
        self, request_iterator: AsyncIterator[users.FollowVerifiersRequest], context: Any
    ) -> AsyncIterator[users.UserTablePage]:
        """The stream ends when this control no longer leads: it might miss changes."""
        refuse_strangers(context)
        journal = self._journal
        journal.require_leading()
        view = journal.view
        found = await self._verifiers.all()
        _require_verifiers(view.users, journal.view.users, found)
        edition = max(view.users.edition, found.edition)
        for page in pages(edition, found.users, await self._verifiers.decoy_secret()):
            yield page
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIRMED_EVERY_S):
                    while journal.view.users is view.users:
                        await journal.grown_beyond(journal.view.position)
            journal.require_leading()
            changed = []
            if journal.view.users is not view.users:
                view = journal.view
                found = await self._verifiers.changed_after(edition)
                edition, changed = max(edition, view.users.edition, found.edition), found.users
            for page in pages(edition, changed):
                yield page


def _require_verifiers(before: Users, after: Users, found: Found) -> None:
    """Unavailable if users of the log have no verifiers: a log that was restored must not lock them out of gateways."""
    names = {each.name for each in found.users}
    lacking = [name for name, user in before.present.items() if after.present.get(name) is user and name not in names]
    if lacking:
        raise Unavailable(
            "VERIFIERS_LOST",
            f"{len(lacking)} users have no verifiers in PostgreSQL, first {min(lacking)!r}; gateways keep the last "
            "users until control has those again: restore user_verifiers from a backup, or set or delete these users",
        )
