"""The proof that clients of a listener owe, and the state of all listeners for it: users, tokens, time to compute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import structlog

from mesh.connection_security import Mechanism
from mesh.scram import Verifier
from mesh.tokens.issuers import TokenBounds
from mesh.user_files import Users, UsersFileError, read_users
from mesh.whole_files import file_version
from services.gateway import metrics
from services.gateway.authentication.bearer_server import BearerServer
from services.gateway.authentication.certificate_names import distinguished_name, principal_of
from services.gateway.authentication.client_tokens import ClientIssuer, ClientTokens
from services.gateway.authentication.conversation import SaslPolicy
from services.gateway.authentication.mechanisms import MechanismServer, PlainServer, ScramServer, UnansweredError
from services.gateway.authentication.principal import NOBODY, Principal
from services.gateway.downstream.server_tls import ServerTls
from services.gateway.listeners import Listener

LOOK_S: Final = 0.5
"""The pause between two checks of the file of users: a change counts within a second."""
CHECKERS: Final = 1
"""Threads that check passwords of PLAIN: a flood of wrong ones leaves the other cores to clients."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Entrance:
    """The entrance of one listener, by one policy."""

    of: Listener
    sasl: SaslPolicy | None = None
    """None: clients do not log in."""
    tls: ServerTls | None = None
    is_over: bool = False
    """The listener has another policy by now, or is closed: nobody comes in here any more."""
    listener: str = field(init=False)
    """As in the settings, for metrics and log lines."""

    def __post_init__(self) -> None:
        self.listener = str(self.of)

    def has_revoked(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the client has shown a certificate that is revoked by now."""
        return self.tls is not None and self.tls.has_revoked(transport)

    def shown(self, transport: asyncio.BaseTransport) -> Principal | None:
        """The principal of the certificate that the client has shown; NOBODY without one, None if no rule matches."""
        certificate = transport.get_extra_info("peercert")
        if self.sasl is not None or not certificate:
            return NOBODY
        return principal_of(distinguished_name(certificate), self.of.rules)


def link_entrance(first: Listener) -> Entrance:
    """For connections of other workers, whose clients have proved who they are; `first`: the gateway's own listener."""
    entrance = Entrance(replace(first, name=""))  # changes of that listener do not concern links
    entrance.listener = ""
    return entrance


@dataclass(frozen=True, slots=True)
class Proofs:
    """The settings about proofs of clients."""

    users_file: Path | None = None
    users_from_control: bool = False
    issuers: tuple[ClientIssuer, ...] = ()
    bounds: TokenBounds = field(default_factory=TokenBounds)
    longest_session_s: float = inf


class Reception:
    """The entrances of all listeners. `start`, then `stop`."""

    def __init__(self, proofs: Proofs, on_users: Callable[[frozenset[str]], None]) -> None:
        """`on_users` gets the users who are gone or have another password. UsersFileError, or OSError from a file."""
        self._proofs = proofs
        self._on_users = on_users
        self._path = proofs.users_file
        self._seen = None if self._path is None else file_version(self._path)
        self._users: Users | None = None
        """None until control's users have come."""
        if not proofs.users_from_control:
            self._users = Users() if self._path is None else read_users(self._path)
        self._tokens = ClientTokens(proofs.issuers, proofs.bounds, _key_request) if proofs.issuers else None
        self._checkers = ThreadPoolExecutor(CHECKERS, thread_name_prefix="passwords")
        metrics.users.set(0 if self._users is None else len(self._users.by_name))

    @property
    def users(self) -> Users:
        """Raises UnansweredError."""
        if self._users is None:
            raise UnansweredError("no users of control have come yet, so nobody can log in with a password")
        return self._users

    @property
    def known(self) -> Mapping[str, Mapping[Mechanism, Verifier]] | None:
        """The users by name; None until control's users have come."""
        return None if self._users is None else self._users.by_name

    def entrance(self, listener: Listener, tls: ServerTls | None) -> Entrance:
        if not listener.mechanisms:
            return Entrance(listener, tls=tls)
        makers = self._makers()
        mechanisms = {each: makers[each] for each in listener.mechanisms}
        return Entrance(listener, SaslPolicy(mechanisms, self._proofs.longest_session_s), tls)

    def find(self, name: str, mechanism: Mechanism) -> Verifier | None:
        return self.users.find(name, mechanism)

    def decoy(self, name: str, mechanism: Mechanism) -> Verifier:
        return self.users.decoy(name, mechanism)

    async def follow(self) -> None:
        """Read the file of users again when it changes. Never ends by itself."""
        while self._path is not None:
            await asyncio.sleep(LOOK_S)
            await self._look(self._path)

    async def stop(self) -> None:
        self._checkers.shutdown(wait=False, cancel_futures=True)
        if self._tokens is not None:
            await self._tokens.close()

    async def _look(self, path: Path) -> None:
        seen = await asyncio.to_thread(file_version, path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            users = await asyncio.to_thread(read_users, path)
        except UsersFileError as error:
            log.error("the file of users could not be read again, the last users stay", reason=str(error))
            return
        self.take(users)

    def take(self, users: Users) -> None:
        """These users count from now on, and no others."""
        before, self._users = self._users or Users(), users
        changed = users.changed_since(before)
        metrics.users.set(len(users.by_name))
        log.info("other users count", users=len(users.by_name), changed=len(changed))
        if changed:
            self._on_users(changed)

    def _makers(self) -> Mapping[str, Callable[[], MechanismServer]]:
        found: dict[str, Callable[[], MechanismServer]] = {
            Mechanism.PLAIN.value: lambda: PlainServer(self, self._is_password),
            Mechanism.SCRAM_SHA_256.value: lambda: ScramServer(Mechanism.SCRAM_SHA_256, self),
            Mechanism.SCRAM_SHA_512.value: lambda: ScramServer(Mechanism.SCRAM_SHA_512, self),
        }
        if self._tokens is not None:
            found[Mechanism.OAUTHBEARER.value] = partial(BearerServer, self._tokens.check)
        return found

    async def _is_password(self, verifier: Verifier, password: str) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._checkers, verifier.is_of, password)


def _key_request(outcome: str) -> None:
    metrics.token_key_requests.labels(outcome).inc()
