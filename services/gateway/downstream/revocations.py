"""Ends the connections of principals that are revoked: by a list of certificates, without a user, without a right.

Theory of operation
1. A connection ends in the turn of the event loop in which the gateway knows. So nothing that waits for the client,
   such as a long Fetch, is answered any more. A Produce that has begun is carried through.
2. A client without any right may connect again. Each of its requests is then refused with the protocol's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from functools import cache

from mesh.acls import Subject
from services.gateway.authorization.access import Authorization, subject_of
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.gate import revoke
from services.gateway.wanted_listeners import PASSWORDS


class Revocations:
    """See above."""

    def __init__(self, connections: Collection[ClientConnection]) -> None:
        self._connections = connections

    def users(self, names: Set[str]) -> None:
        """These users are gone, or have another password."""

        def has_changed(connection: ClientConnection) -> bool:
            proved = connection.session.proved
            return proved.proof in PASSWORDS and proved.name in names

        self._end("its user has changed", has_changed)

    def certificates(self) -> None:
        """Other lists of revoked certificates count."""
        self._end("its certificate is revoked", lambda connection: connection.has_revoked_certificate)

    def rights(self, before: Authorization, after: Authorization) -> None:
        """Another policy counts."""

        @cache
        def lost_all(subject: Subject) -> bool:
            return after.allows_nothing(subject) and not before.allows_nothing(subject)

        def has_lost_all(connection: ClientConnection) -> bool:
            return lost_all(subject_of(connection.session.proved, connection.session.address))

        self._end("it may do nothing any more", has_lost_all)

    def _end(self, why: str, concerns: Callable[[ClientConnection], bool]) -> None:
        for connection in list(self._connections):
            if connection.is_open and concerns(connection):
                revoke(connection, why)
