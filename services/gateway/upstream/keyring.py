"""The keys of one cluster: its TLS context and its credentials, resolved when a connection is made.

The keys are made off the event loop and serve all connections for a while, so that a renewed certificate or password
counts soon, without a restart. If new keys can't be made, the last ones stay in use. After a refusal, new keys are made
for the next connection. A token is fetched once for all that wait for it, and replaced before its end.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from mesh.bearer_tokens import BearerToken, TokenError, TokenSource
from mesh.connection_security import (
    ConnectionSecurity,
    ExchangedTokenLogin,
    IssuedTokenLogin,
    KerberosLogin,
    Login,
    PasswordLogin,
    UnsecuredTokenLogin,
)
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.tls import TlsSettingsError, tls_context
from services.gateway.requests.memory import Session
from services.gateway.upstream.bearer import Bearer
from services.gateway.upstream.kerberos import Kerberos
from services.gateway.upstream.sasl import Credentials, Password

log = structlog.get_logger(__name__)

FRESH_S: Final = 60.0
RETRY_S: Final = 5.0
"""The pause before the gateway tries again to renew keys."""


class KeyringError(Exception):
    """A key that the cluster's security needs is missing: the property and the reason, without a secret."""


@dataclass(frozen=True, slots=True)
class Keys:
    """`None` stands for a connection without TLS, or without a login."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None


class Keyring:
    """See above."""

    def __init__(self, cluster: str, security: ConnectionSecurity) -> None:
        self.on_refused: Callable[[str], None] | None = None
        """Called when a broker refuses the login, or a key of it is missing."""
        self._cluster = cluster
        self._security = security
        self._loop = asyncio.get_running_loop()
        login = security.login
        self._tokens = TokenSource(login) if isinstance(login, (UnsecuredTokenLogin, IssuedTokenLogin)) else None
        self._keys: Keys | None = Keys() if security == ConnectionSecurity() else None
        self._fresh_until = 0.0 if self._keys is None else float("inf")
        self._making: asyncio.Task[Keys] | None = None

    async def keys(self) -> Keys:
        """Raises KeyringError."""
        if self._keys is not None and self._loop.time() < self._fresh_until:
            return self._keys
        if self._making is None:
            self._making = self._loop.create_task(self._made(), name=f"keys of {self._cluster}")
            self._making.add_done_callback(self._done)
        return await asyncio.shield(self._making)

    def doubt(self, *, login_refused: bool = False) -> None:
        """A broker did not accept these keys: they may have been renewed."""
        if self._security != ConnectionSecurity():
            self._fresh_until = 0.0
        if self._tokens is not None and login_refused:
            self._tokens.doubt()

    async def _made(self) -> Keys:
        fresh_s = FRESH_S
        try:
            keys = await asyncio.to_thread(_made, self._security)
        except KeyringError as error:
            if self._keys is None:
                raise
            log.warning("keys could not be renewed, the last ones serve", cluster=self._cluster, reason=str(error))
            keys, fresh_s = self._keys, RETRY_S
        if self._tokens is not None:
            try:
                token = await self._tokens.token()
            except TokenError as error:
                raise KeyringError(str(error)) from None
            keys = replace(keys, credentials=Bearer(token))
            fresh_s = min(fresh_s, max(RETRY_S, token.renew_at - time.monotonic()))
        self._keys = keys
        self._fresh_until = self._loop.time() + fresh_s
        return keys

    def _done(self, task: asyncio.Task[Keys]) -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # the waiters have it, but there may be none any more


class TokenKeyring(Keyring):
    """Keys with the token by which the client has logged in last."""

    def __init__(self, cluster: str, security: ConnectionSecurity, session: Session) -> None:
        super().__init__(cluster, security)
        self._session = session

    async def keys(self) -> Keys:
        keys, token = await super().keys(), self._session.token
        if token is None:
            raise KeyringError("the client has no token any more")
        return replace(keys, credentials=Bearer(BearerToken(token, {}, time.monotonic(), math.inf)))


class ExchangedTokenKeyring(Keyring):
    """Keys with the token that the cluster's issuer gives for the one by which the client has logged in last."""

    def __init__(
        self, cluster: str, security: ConnectionSecurity, login: ExchangedTokenLogin, session: Session
    ) -> None:
        super().__init__(cluster, security)
        self._exchanged = login
        self._session = session

    async def keys(self) -> Keys:
        token = self._session.token
        if token is None:
            raise KeyringError("the client has no token any more")
        if token != self._exchanged.subject_token:
            self._exchanged = replace(self._exchanged, subject_token=token)
            self._tokens, self._fresh_until = TokenSource(self._exchanged), 0.0
        return await super().keys()


def _made(security: ConnectionSecurity) -> Keys:
    try:
        tls = None if security.tls is None else tls_context(security.tls)
        return Keys(tls, _credentials(security.login))
    except (TlsSettingsError, UnresolvedReferenceError) as error:
        raise KeyringError(str(error)) from None


def _credentials(login: Login | None) -> Credentials | None:
    """The credentials, except a token: a token is fetched, and has a life of its own."""
    match login:
        case PasswordLogin():
            username = resolve_property("sasl.username", login.username)
            return Password(login.mechanism, username, resolve_property("sasl.password", login.password))
        case KerberosLogin():
            principal = resolve_property("sasl.kerberos.principal", login.principal)
            return Kerberos(login.service_name, principal, resolve_property("sasl.kerberos.keytab", login.keytab))
    return None
