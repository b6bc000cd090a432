"""The connection of a reading to the home cluster: addresses and login, resolved for that reading."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from mesh.bearer_tokens import TokenError, TokenSource
from mesh.connection_security import ConnectionSecurity, IssuedTokenLogin, PasswordLogin, UnsecuredTokenLogin
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.settings import host_port
from mesh.tls import TlsSettingsError, tls_context

RESOLVE_TIMEOUT = 5.0
"""Seconds to read certificates and secrets."""
KNOCK_TIMEOUT = 3.0
"""Seconds until a broker has let us in, or has not."""
SAYS_NOTHING = (
    "the broker closes the connection; it may want another security.protocol, or a certificate that it trusts"
)
"""Brokers give no reason before a login, nor without one."""


class HomeAccessError(RuntimeError):
    """A secret or file for the home cluster's security is missing: the property and the reason, without a secret."""


class HomeToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
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
class HomeAccess:
    """Addresses, TLS and login for a connection to the home cluster. `None` stands for: without."""

    bootstrap: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    login: PasswordLogin | HomeToken | None = field(default=None, repr=False)

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
            case HomeToken():
                arguments |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": self.login}
        return arguments


async def home_access(bootstrap: Sequence[str], security: ConnectionSecurity) -> HomeAccess:
    """With secrets and certificates as they are now. HomeAccessError names the property that can't be used."""
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT):
            return await asyncio.to_thread(_resolved, tuple(bootstrap), security)
    except TimeoutError:
        raise HomeAccessError(f"home_properties can't be resolved within {RESOLVE_TIMEOUT:g} s") from None


async def why_kept_out(home: HomeAccess) -> str:
    """Why no broker accepts the login, each with its reason; empty when a broker does. aiokafka's own errors don't say
    it.
    """
    reasons = await asyncio.gather(*(_knock(address, home) for address in home.bootstrap))
    return "" if "" in reasons else "; ".join(reasons)


def reason_of(error: BaseException) -> str:
    """The error in words, also where it has none."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


async def _knock(address: str, home: HomeAccess) -> str:
    try:
        async with asyncio.timeout(KNOCK_TIMEOUT):
            await _enter(address, home)
    except (KafkaConnectionError, ConnectionResetError, BrokenPipeError):
        return f"{address}: {SAYS_NOTHING}"
    except (KafkaError, OSError, ValueError, LookupError) as error:  # the last two: SCRAM by who can't prove itself
        return f"{address}: {_without_password(reason_of(error), home)}"
    return ""


async def _enter(address: str, home: HomeAccess) -> None:
    """Connects, and sends a request that a broker answers only after the login."""
    host, port = host_port(address)
    connection: Any = await create_conn(host, port, request_timeout_ms=int(1000 * KNOCK_TIMEOUT), **home.for_aiokafka())
    try:
        await connection.send(MetadataRequest([]))
    finally:
        connection.close()


def _without_password(words: str, home: HomeAccess) -> str:
    """A broker may repeat the password in its answer."""
    secret = home.login.password if isinstance(home.login, PasswordLogin) else ""
    return words.replace(secret, "(password)") if secret else words


def _resolved(bootstrap: tuple[str, ...], security: ConnectionSecurity) -> HomeAccess:
    try:
        tls = None if security.tls is None else tls_context(security.tls)
        return HomeAccess(bootstrap, tls, _login(security))
    except (TlsSettingsError, UnresolvedReferenceError) as error:
        raise HomeAccessError(str(error)) from None


def _login(security: ConnectionSecurity) -> PasswordLogin | HomeToken | None:
    match security.login:
        case PasswordLogin() as login:
            username = resolve_property("sasl.username", login.username)
            return replace(login, username=username, password=resolve_property("sasl.password", login.password))
        case UnsecuredTokenLogin() | IssuedTokenLogin() as login:
            return HomeToken(TokenSource(login))
    return None
