"""The connection of aiokafka to a cluster: addresses, TLS and login, with secrets resolved for that connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from mesh.bearer_tokens import TokenError, TokenSource
from mesh.connection_security import (
    MECHANISM_NAMES,
    ConnectionSecurity,
    IssuedTokenLogin,
    KerberosLogin,
    PasswordLogin,
    UnsecuredTokenLogin,
)
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.tls import TlsSettingsError, tls_context

RESOLVE_TIMEOUT = 5.0
"""Seconds to read certificates and secrets."""


class ClusterAccessError(RuntimeError):
    """A secret or file for the cluster's security is missing, or its login is not served.

    The message names the property and the reason, without a secret.
    """


class AccessToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
    """The token of each new connection, for aiokafka."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens
        self._extensions: Mapping[str, str] = {}

    async def token(self) -> str:
        """Raises KafkaError: of others aiokafka does not think that they may pass."""
        try:
            token = await self._tokens.token()
        except TokenError as error:
            raise KafkaError(str(error)) from None
        self._extensions = token.extensions
        return token.value

    def extensions(self) -> Mapping[str, str]:
        return self._extensions


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Addresses, TLS and login for connections to a cluster. `None` stands for: without."""

    bootstrap: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    login: PasswordLogin | AccessToken | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return ", ".join(self.bootstrap)

    def for_aiokafka(self) -> dict[str, Any]:
        """Arguments of aiokafka's clients and connections."""
        protocols = {(False, False): "PLAINTEXT", (True, False): "SSL", (False, True): "SASL_PLAINTEXT"}
        protocol = protocols.get((self.tls is not None, self.login is not None), "SASL_SSL")
        arguments: dict[str, Any] = {"security_protocol": protocol, "ssl_context": self.tls}
        match self.login:
            case PasswordLogin(mechanism, username, password):
                arguments |= {
                    "sasl_mechanism": mechanism.value,
                    "sasl_plain_username": username,
                    "sasl_plain_password": password,
                }
            case AccessToken():
                arguments |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": self.login}
        return arguments


async def cluster_access(bootstrap: Sequence[str], security: ConnectionSecurity) -> ClusterAccess:
    """With secrets and certificates as they are now. ClusterAccessError names the property that can't be used."""
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT):
            return await asyncio.to_thread(_resolved, tuple(bootstrap), security)
    except TimeoutError:
        raise ClusterAccessError(f"secrets and certificates can't be read within {RESOLVE_TIMEOUT:g} s") from None


def reason_of(error: BaseException) -> str:
    """The error in words, also where it has none."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def _resolved(bootstrap: tuple[str, ...], security: ConnectionSecurity) -> ClusterAccess:
    try:
        tls = None if security.tls is None else tls_context(security.tls)
        return ClusterAccess(bootstrap, tls, _login(security))
    except (TlsSettingsError, UnresolvedReferenceError) as error:
        raise ClusterAccessError(str(error)) from None


def _login(security: ConnectionSecurity) -> PasswordLogin | AccessToken | None:
    match security.login:
        case PasswordLogin() as login:
            username = resolve_property("sasl.username", login.username)
            return replace(login, username=username, password=resolve_property("sasl.password", login.password))
        case UnsecuredTokenLogin() | IssuedTokenLogin() as login:
            return AccessToken(TokenSource(login))
        case KerberosLogin():
            raise ClusterAccessError(f"{MECHANISM_NAMES[0]}: GSSAPI is not served for this connection; use another")
    return None
