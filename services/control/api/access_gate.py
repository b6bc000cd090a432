"""Decides which calls of people and programs control admits. One place for all services, also for later ones.

How a revoked grant counts within a second, at every replica of control
1. The gate reads the grants from the view in memory, at each call and before each message of a stream. It remembers no
   verdict.
2. The replica that leads changes its view with the commit, before RevokeRole answers.
3. PostgreSQL notifies the other replicas of the commit. A replica that misses the notification reads the log anyway,
   every half second (`store/leader.py`).
A replica that has lost PostgreSQL decides nothing, and hears of no revocation: it answers reads from memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import grpc
from google.protobuf.message import Message

from mesh.rpc import access
from mesh.rpc.errors import RpcError, denied
from mesh.rpc.method_access import access_of
from mesh.rpc.principals import Principal
from services.control.api.named_things import NamedThings
from services.control.domain.access.rights import Asked, Asker, Policy
from services.control.domain.access.things import Thing
from services.control.store.journal import Journal
from services.control.store.reports import Reports


class AccessGate:
    """Asked by `Calls` before each call, and before each message of a stream."""

    def __init__(
        self, journal: Journal, reports: Reports, first_admins: Collection[str], *, counts_certificates: bool
    ) -> None:
        self._journal = journal
        self._reports = reports
        self._first_admins = frozenset(first_admins)
        self._counts_certificates = counts_certificates

    @property
    def policy(self) -> Policy:
        """The policy now."""
        return Policy(self._journal.view.grants, self._first_admins, counts_certificates=self._counts_certificates)

    def admit(self, principal: Principal, method: str, request: object) -> None:
        """RpcError if a person or program may not make the call; the request is a message, or a stream of messages."""
        if principal.expires_at <= time.time():
            raise RpcError(grpc.StatusCode.UNAUTHENTICATED, f"the bearer token of {principal.name} has expired")
        policy, asker = self.policy, asker_of(principal)
        if asker.name not in self._first_admins:
            self._journal.require_loaded()  # a view without its decisions would admit by certificate
        asked = Asked(method.removeprefix("/mesh.v1."), access_of(method))
        verdict = policy.verdict(asker, asked)
        if (
            verdict.grant is None
            and isinstance(request, Message)
            and any(grant.narrowing.ByteSize() for grant, _ in verdict.tried)
        ):
            things = NamedThings(self._journal.view, self._reports.known.instances).of(request)
            verdict = policy.verdict(asker, Asked(asked.method, asked.access_to, tuple(dict.fromkeys(things))))
        if verdict.grant is None:
            raise denied(verdict.reason)

    def allows(self, principal: Principal, what: str, access_to: access.Access) -> bool:
        """Whether the caller may have a part of an answer, `what`, that not everybody gets who may make the call."""
        if principal.is_member:
            return principal.role in access_to.roles
        return self.policy.verdict(asker_of(principal), Asked(what, access_to)).grant is not None

    def sees(self, principal: Principal, method: str, things: Collection[Thing]) -> bool:
        """Whether the caller may see a part of an answer: the caller could make a call that names these things."""
        asked = Asked(method.removeprefix("/mesh.v1."), access_of(method), things)
        return principal.is_member or self.policy.verdict(asker_of(principal), asked).grant is not None

    def admit_on_behalf_of(self, principal: Principal, other: str) -> None:
        """RpcError if the caller may not say that it calls on behalf of another."""
        if principal.is_member or not self.policy.may_name_another(asker_of(principal)):
            raise denied(
                f"{principal.actor} may not call on behalf of {other}: no grant of {principal.actor} allows that; "
                "an admin can grant it (on_behalf_of_others)"
            )


def asker_of(principal: Principal) -> Asker:
    """The caller, as the policy wants it."""
    return Asker(principal.name, principal.groups, principal.role)
