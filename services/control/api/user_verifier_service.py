"""UserVerifierService: users with their verifiers, for routers alone. The only way on which verifiers leave control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from mesh.rpc import users, users_grpc
from mesh.rpc.strangers import refuse_strangers
from mesh.user_tables import CONFIRMED_EVERY_S, lost_user, pages
from services.control.domain.users.users import Users
from services.control.store.journal import Journal
from services.control.store.verifiers import Found, UserVerifiers


class UserVerifierService(users_grpc.UserVerifierServiceServicer):
    """See UserVerifierService in users.proto."""

    def __init__(self, journal: Journal, verifiers: UserVerifiers) -> None:
        self._journal = journal
        self._verifiers = verifiers
        self._lost: frozenset[str] = frozenset()
        """Users without verifiers, when a router last asked for all users."""

    @property
    def trouble(self) -> str:
        """The users whose verifiers are lost, and the remedy; empty if there are none."""
        lost = self._lost & self._journal.view.users.present.keys()
        if not lost:
            return ""
        return (
            f"PostgreSQL has none for {len(lost)} of them, first {min(lost)!r}, so gateways keep those that they have: "
            "restore the table user_verifiers from a backup, or set or delete these users"
        )

    async def FollowVerifiers(
        self, request_iterator: AsyncIterator[users.FollowVerifiersRequest], context: Any
    ) -> AsyncIterator[users.UserTablePage]:
        """The stream ends when this control no longer leads: it might miss changes."""
        refuse_strangers(context)
        journal = self._journal
        journal.require_leading()
        view = journal.view
        found = await self._verifiers.all()
        lost = self._lost = _without_verifiers(view.users, journal.view.users, found)
        edition = max(view.users.edition, found.edition)
        everyone = [*found.users, *map(lost_user, sorted(lost))]
        for page in pages(edition, everyone, await self._verifiers.decoy_secret()):
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
                gone = lost - view.users.present.keys()  # PostgreSQL has no row that says so
                lost -= gone | {each.name for each in found.users}
                edition = max(edition, view.users.edition, found.edition)
                changed = [*(users.UserVerifiers(name=name) for name in gone), *found.users]
            self._lost = lost
            for page in pages(edition, changed):
                yield page


def _without_verifiers(before: Users, after: Users, found: Found) -> frozenset[str]:
    """Users of the log without verifiers. A log that was restored must not lock these users out of gateways."""
    names = {each.name for each in found.users}
    return frozenset(
        name for name, user in before.present.items() if after.present.get(name) is user and name not in names
    )
