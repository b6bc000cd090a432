"""Tokens for OAUTHBEARER: given by an issuer for a client's id and secret or for a client's token, or made for trials.

A token is kept until most of its life is over and then replaced; while it can't be, it serves until its end. No error
says a secret or a token, also not when the issuer sends one back.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

import structlog

from mesh.connection_security import BearerLogin, ExchangedTokenLogin, IssuedTokenLogin, UnsecuredTokenLogin
from mesh.secret_references import UnresolvedReferenceError, resolve
from mesh.tls import TlsSettingsError, https_context

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger(__name__)

ISSUER_TIMEOUT_S = 10.0
"""For the whole exchange with the issuer."""
LARGEST_ANSWER = 1 << 20
RETRY_AFTER_S = 1.0
RENEW_AFTER = 0.8
"""Part of a token's life, as in librdkafka."""
DOUBT_AFTER_S = 5.0
UNTOLD_LIFE_S = 60.0
"""Life of a token whose issuer does not say how long the token is valid."""
UNSECURED_LIFE_S = 3600.0
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  (the name of a kind of token)
MAX_SHOWN = 200
"""Characters of an issuer's own words in our reason."""
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""RFC 6750; anything else could end the message that carries it."""
EXTENSION_NAME, EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\t\r\n\x20-\x7e]*")
"""RFC 7628."""


class TokenError(Exception):
    """There is no token: the property or the issuer, and the reason, fit for a log."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token and what the client tells the broker beside it."""

    value: str = field(repr=False)
    extensions: Mapping[str, str]
    made_at: float
    life_s: float

    @property
    def renew_at(self) -> float:
        """By the monotonic clock, as all times here."""
        return self.made_at + RENEW_AFTER * self.life_s

    @property
    def ends_at(self) -> float:
        return self.made_at + self.life_s


class TokenSource:
    """The current token of one login. Belongs to no event loop; who asks side by side may fetch it twice."""

    def __init__(self, login: BearerLogin) -> None:
        self._login = login
        self._token: BearerToken | None = None
        self._fault: TokenError | None = None
        self._failed_at = 0.0

    async def token(self) -> BearerToken:
        """Raises TokenError."""
        current = self._token
        if current is not None and time.monotonic() < current.renew_at:
            return current
        try:
            self._token = await self._new()
        except TokenError as error:
            if current is None or time.monotonic() >= current.ends_at:
                raise
            log.warning("a token could not be renewed, the last one serves", reason=str(error))
            return current
        return self._token

    async def _new(self) -> BearerToken:
        """An issuer that just failed is left in peace for a moment, however often we are asked."""
        if self._fault is not None and time.monotonic() - self._failed_at < RETRY_AFTER_S:
            raise self._fault
        try:
            token = await _new_token(self._login)
        except TokenError as error:
            self._fault, self._failed_at = error, time.monotonic()
            raise
        self._fault = None
        return token

    def doubt(self) -> None:
        """A broker did not accept it. A new one was made for that broker: the next would fare no better."""
        if self._token is not None and time.monotonic() - self._token.made_at > DOUBT_AFTER_S:
            self._token = None


async def _new_token(login: BearerLogin) -> BearerToken:
    if isinstance(login, UnsecuredTokenLogin):
        return await asyncio.to_thread(lambda: unsecured_token(_resolved("sasl.oauthbearer.config", login.config)))
    import httpx  # every service could log in with a token, and few do: the others start without the HTTP client

    wanted, trusted = await asyncio.to_thread(_prepared, login)
    try:
        async with asyncio.timeout(ISSUER_TIMEOUT_S), httpx.AsyncClient(verify=trusted, timeout=None) as client:
            return await _issued(client, wanted)
    except TimeoutError:
        raise TokenError(f"{wanted.endpoint_url}: no token within {ISSUER_TIMEOUT_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TokenError(f"{wanted.endpoint_url}: {str(error) or type(error).__name__}") from None


# --- tokens of an issuer ---------------------------------------------------------------------------------------------


def _prepared(login: IssuedTokenLogin) -> tuple[IssuedTokenLogin, SSLContext]:
    """With all references resolved; reads files."""
    names = "sasl.oauthbearer."
    resolved = replace(
        login,
        endpoint_url=_resolved(f"{names}token.endpoint.url", login.endpoint_url),
        client_id=_resolved(f"{names}client.id", login.client_id),
        client_secret=_resolved(f"{names}client.secret", login.client_secret),
        scope=_resolved(f"{names}scope", login.scope),
        extensions=_resolved(f"{names}extensions", login.extensions),
    )
    if not resolved.endpoint_url.lower().startswith("https://"):
        raise TokenError(f"{names}token.endpoint.url: the client's secret is sent there: only https:// is served")
    try:
        return resolved, https_context(login.ca_pem, login.ca_location)
    except TlsSettingsError as error:
        raise TokenError(str(error)) from None


async def _issued(client: httpx.AsyncClient, login: IssuedTokenLogin) -> BearerToken:
    """The client-credentials grant (RFC 6749, 4.4), or the exchange of a client's token (RFC 8693, 2.1)."""
    extensions = _extensions(login.extensions.split(","))
    form = {"grant_type": "client_credentials"}
    secrets = [login.client_secret]
    if isinstance(login, ExchangedTokenLogin):
        form = {"grant_type": EXCHANGE, "subject_token": login.subject_token, "subject_token_type": ACCESS_TOKEN}
        form |= {"audience": login.audience} if login.audience else {}
        secrets.append(login.subject_token)
    form |= {"scope": login.scope} if login.scope else {}
    asked_at = time.monotonic()
    content = bytearray()
    who = (login.client_id, login.client_secret)
    accepts = {"Accept": "application/json"}
    async with client.stream("POST", login.endpoint_url, data=form, headers=accepts, auth=who) as answer:
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > LARGEST_ANSWER:
                raise TokenError(f"{login.endpoint_url} answers with more than {LARGEST_ANSWER} bytes")
    said = _object(content)
    if answer.status_code != HTTPStatus.OK:
        words = " ".join(str(said[name]) for name in ("error", "error_description") if name in said)
        shown = _harmless(words, secrets) or "without a reason"
        raise TokenError(f"{login.endpoint_url} gives no token: {answer.status_code} {shown}")
    value = said.get("access_token")
    if not isinstance(value, str) or not TOKEN.fullmatch(value):
        raise TokenError(f"{login.endpoint_url} answers without a token in 'access_token'")
    return BearerToken(value, extensions, asked_at, _life_s(value, said))


def _life_s(token: str, said: Mapping[str, Any]) -> float:
    """As the issuer says: in its answer, which needs no common clock, or in the token itself."""
    told = said.get("expires_in")
    if isinstance(told, (int, float, str)) and str(told).replace(".", "", 1).isdecimal():
        return float(told)
    ends = _claims(token).get("exp")
    return max(0.0, ends - time.time()) if isinstance(ends, (int, float)) else UNTOLD_LIFE_S


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JWT; empty for a token of another kind. The broker verifies the token, this process does not."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}


def _object(content: bytes | bytearray) -> dict[str, Any]:
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _harmless(words: str, secrets: Iterable[str]) -> str:
    for secret in filter(None, secrets):
        words = words.replace(secret, "(secret)")
    shown = words[:MAX_SHOWN]
    return "".join(c if c.isprintable() else " " for c in shown)


# --- tokens that nobody signs ----------------------------------------------------------------------------------------


def unsecured_token(config: str) -> BearerToken:
    """An unsecured JWS from librdkafka's words: `principal=admin scope=a,b lifeSeconds=600 extension_name=value`."""
    words = dict(_pair("sasl.oauthbearer.config", word) for word in config.split())
    extensions = [
        f"{name.removeprefix('extension_')}={words.pop(name)}" for name in list(words) if name.startswith("extension_")
    ]
    principal_claim = words.pop("principalClaimName", "sub")
    scope_claim = words.pop("scopeClaimName", "scope")
    principal, scope = words.pop("principal", ""), words.pop("scope", "")
    life = words.pop("lifeSeconds", f"{UNSECURED_LIFE_S:g}")
    if not principal or not life.isdecimal() or words:
        wrong = f"unknown: {', '.join(words)}" if words else "principal= is missing, or lifeSeconds= is no number"
        known = "principal, principalClaimName, scope, scopeClaimName, lifeSeconds, extension_NAME"
        raise TokenError(f"sasl.oauthbearer.config: {wrong} (known: {known})")
    now = time.time()
    claims: dict[str, Any] = {principal_claim: principal, "iat": now, "exp": now + int(life)}
    if scope:
        claims[scope_claim] = scope.split(",")
    value = f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."
    return BearerToken(value, _extensions(extensions), time.monotonic(), float(life))


def _encoded(said: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


# --- both ------------------------------------------------------------------------------------------------------------


def _extensions(pairs: list[str]) -> dict[str, str]:
    found = dict(_pair("sasl.oauthbearer.extensions", pair) for pair in pairs if pair.strip())
    for name, value in found.items():
        if name == "auth" or not EXTENSION_NAME.fullmatch(name) or not EXTENSION_VALUE.fullmatch(value):
            reason = "names are of letters, and not 'auth'; values are of printable ASCII"
            raise TokenError(f"sasl.oauthbearer.extensions: {name!r} can't be sent: {reason}")
    return found


def _pair(place: str, word: str) -> tuple[str, str]:
    name, separator, value = word.strip().partition("=")
    if not separator:
        raise TokenError(f"{place}: expected NAME=VALUE pairs, got one without '='")
    return name, value


def _resolved(name: str, value: str) -> str:
    try:
        return resolve(value)
    except UnresolvedReferenceError as error:
        raise TokenError(f"{name}: {error}") from None
