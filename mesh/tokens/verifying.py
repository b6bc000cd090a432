"""From a bearer token to the caller that the token names.

A token is verified once and remembered for a while, by its digest. No log line and no error shows the token, or any
part of the token that the issuer did not sign.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import jwt

from mesh.tokens.issuers import TokenBounds, TokenIssuer
from mesh.tokens.key_source import KeyBounds, KeySource, KeysUnavailableError
from mesh.tokens.keys import ALGORITHMS

MAX_TOKEN_BYTES = 8 * 1024
"""The size of one header that servers commonly accept."""
MAX_REMEMBERED = 1_000
REMEMBERED_SECONDS = 60.0
"""The time after which a verified token is verified again, with the keys of that time."""
LATEST = 2.0**53
"""The latest expiry that counts, in seconds since 1970; a later expiry is cut to this."""

_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

C = TypeVar("C")


class InvalidTokenError(Exception):
    """The token is no valid one; the reason is fit for the caller."""


class ExpiredTokenError(Exception):
    """The token was valid until a time that is over."""


class IssuerUnavailableError(Exception):
    """The keys of the token's issuer can't be had; the reason is for a log."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """The issuer of valid tokens, and the audience that its tokens must name; an empty value accepts all."""

    keys: KeySource
    name: str = ""
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token whose signature, audience and times are valid."""

    issuer: str
    """The name of the issuer in the settings."""
    said: Mapping[str, Any]
    expires_at: float
    """The wall clock time from which the token is invalid, with the allowed clock skew included."""


class TokenVerifier(Generic[C]):
    """Verifies tokens, and returns what `read` makes of their claims.

    An issuer without a name gets the tokens that name no other issuer. `read` may raise InvalidTokenError.
    """

    def __init__(
        self,
        issuers: Sequence[Issuer],
        read: Callable[[Claims], C],
        *,
        clock_skew: float,
        clock: Callable[[], float] = time.time,
        on_remembered: Callable[[int], object] = int,
    ) -> None:
        """`on_remembered` gets the number of remembered tokens when it changes."""
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._read = read
        self._clock_skew = clock_skew
        self._clock = clock
        self._on_remembered = on_remembered
        self._remembered: OrderedDict[bytes, _Remembered[C]] = OrderedDict()

    async def caller(self, token: str) -> C:
        """The caller. Raises InvalidTokenError, ExpiredTokenError, IssuerUnavailableError."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        remembered = self._remembered.get(digest)
        if remembered is None or not remembered.counts(self._clock()):
            remembered = await self._verified(token)
            self._remember(digest, remembered)
        if remembered.expires_at <= self._clock():
            raise ExpiredTokenError
        return remembered.caller

    async def reload(self) -> None:
        """Reads the keys of all issuers again. KeysUnavailableError when an issuer does not answer; its last keys serve
        on."""
        found = await asyncio.gather(
            *(issuer.keys.reload() for issuer in self._issuers.values()), return_exceptions=True
        )
        for problem in found:
            if isinstance(problem, BaseException):
                raise problem

    async def close(self) -> None:
        for issuer in self._issuers.values():
            await issuer.keys.close()

    def _remember(self, digest: bytes, verified: _Remembered[C]) -> None:
        self._remembered[digest] = verified
        self._remembered.move_to_end(digest)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        self._on_remembered(len(self._remembered))

    async def _verified(self, token: str) -> _Remembered[C]:
        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidTokenError(f"it is longer than {MAX_TOKEN_BYTES} bytes")
        if not _SHAPE.fullmatch(token):
            raise InvalidTokenError("it is no signed JWT")
        header, issuer = self._unverified(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise InvalidTokenError(f"its algorithm is none of {', '.join(sorted(ALGORITHMS))}")
        if not isinstance(key_id, str | None):
            raise InvalidTokenError("its kid is no text")
        try:
            key = await issuer.keys.find(key_id, algorithm)
        except KeysUnavailableError as error:
            raise IssuerUnavailableError(str(error)) from None
        if key is None:
            raise InvalidTokenError("the issuer has no such key")
        said = self._decoded(token, key.public, algorithm, issuer)
        expires_at = min(float(said["exp"]), LATEST) + self._clock_skew
        caller = self._read(Claims(issuer.name, said, expires_at))
        until = self._clock() + REMEMBERED_SECONDS
        return _Remembered(caller, expires_at, issuer.keys, issuer.keys.generation, until)

    def _unverified(self, token: str) -> tuple[Mapping[str, Any], Issuer]:
        """The unverified header of a token, and its issuer. They only choose the key that verifies the token."""
        try:
            complete = jwt.decode_complete(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise InvalidTokenError("it is no signed JWT") from None
        named = complete["payload"].get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        issuer = issuer or self._issuers.get("")
        if issuer is None:
            raise InvalidTokenError("its issuer (iss) is not one whose tokens count here")
        return complete["header"], issuer

    def _decoded(self, token: str, public_key: Any, algorithm: str, issuer: Issuer) -> dict[str, Any]:
        """The claims of a token whose signature, audience and times are valid."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key=public_key,
                algorithms=[algorithm],
                issuer=issuer.name or None,
                audience=issuer.audiences or None,
                leeway=self._clock_skew,
                options={"require": ["exp"], "verify_aud": bool(issuer.audiences)},
            )
        except jwt.ExpiredSignatureError:
            raise ExpiredTokenError from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise InvalidTokenError(_WHY.get(type(error), "its claims are not as they should be")) from None
        return claims


@dataclass(frozen=True, slots=True)
class _Remembered(Generic[C]):
    caller: C
    expires_at: float
    keys: KeySource
    generation: int
    until: float

    def counts(self, now: float) -> bool:
        """Whether the result is still valid: its time is not over, and the issuer's keys have not changed."""
        return now < self.until and self.generation == self.keys.generation


_WHY: dict[type[Exception], str] = {
    jwt.InvalidSignatureError: "its signature is not the issuer's",
    jwt.InvalidAudienceError: "it is not meant for this service (aud)",
    jwt.InvalidIssuerError: "its issuer (iss) is not one whose tokens count here",
    jwt.ImmatureSignatureError: "it does not count yet (nbf, iat)",
    jwt.MissingRequiredClaimError: "it lacks a claim (exp, iss or aud)",
}


def issuers_of(
    issuers: Sequence[TokenIssuer], bounds: TokenBounds, on_request: Callable[[str], object] = str
) -> list[Issuer]:
    """The issuers that settings name; `on_request` gets the outcome of each request for keys. OSError if the file of
    authorities can't be used.
    """
    trusted = _trusted(bounds.token_keys_ca)
    limits = KeyBounds(
        max_age=bounds.token_keys_max_age_ms / 1000,
        max_stale=bounds.token_keys_max_stale_ms / 1000,
        pause=bounds.token_keys_pause_ms / 1000,
        timeout=bounds.token_keys_timeout_ms / 1000,
    )
    return [
        Issuer(
            KeySource(each.jwks_url, each.issuer, limits, trusted, on_request=on_request), each.issuer, each.audience
        )
        for each in issuers
    ]


def scopes_of(claims: Mapping[str, Any]) -> list[str]:
    """The scopes in the claim `scope`, or `scp` as some issuers call it; words in one text, or a list. Raises
    InvalidTokenError.
    """
    scopes: list[str] = []
    for claim in ("scope", "scp"):
        match claims.get(claim):
            case None:
                continue
            case str() as words:
                scopes += words.split()
            case list() as words if all(isinstance(word, str) for word in words):
                scopes += words
            case _:
                raise InvalidTokenError(f"its claim {claim} is neither a text nor a list of texts")
    return scopes


def _trusted(ca: Path | None) -> ssl.SSLContext:
    """The TLS context for issuers, with the authorities of a PEM file, or those that the system trusts."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # ssl.SSLError is one
        raise OSError(f"token_keys_ca {ca} can't be used: {error.strerror or type(error).__name__}") from None
