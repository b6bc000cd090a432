"""Bearer tokens: from the Authorization header to the caller.

A token is verified once and remembered for a while, by its digest. No log line and no error shows the token, or any
part of the token that the issuer did not sign.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.security.callers import EXPIRED, Caller
from services.sidecar.security.key_source import KeySource, KeysUnavailableError
from services.sidecar.security.keys import ALGORITHMS
from services.sidecar.telemetry import metrics

MAX_TOKEN_BYTES = 8 * 1024
"""The size of one header that servers commonly accept."""
MAX_REMEMBERED = 1_000
REMEMBERED_SECONDS = 60.0
"""The time after which a verified token is verified again, with the keys of that time."""
MAX_NAME_LENGTH = 200
LATEST = 2.0**53
"""The latest expiry that counts, in seconds since 1970; a later expiry is cut to this."""

_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_INVALID = "Incorrect signature or malformed token in authorization header"
_MISSING = "No Authorization header or the token is not bearer type"
"""The original's text."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """The issuer of valid tokens, and the audience that its tokens must name; an empty value accepts all."""

    keys: KeySource
    name: str = ""
    audiences: tuple[str, ...] = ()


class TokenVerifier:
    """Verifies tokens and returns their callers. An issuer without a name gets the tokens that name no other issuer."""

    def __init__(self, issuers: Sequence[Issuer], *, clock_skew: float, clock: Callable[[], float] = time.time) -> None:
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._clock_skew = clock_skew
        self._clock = clock
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()

    async def caller(self, authorization: str) -> Caller:
        """The caller. Raises Fault: no token, an invalid token, or a token whose issuer can't be asked."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Fault(FaultKind.MISSING_AUTH_TOKEN, _MISSING)
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        remembered = self._remembered.get(digest)
        if remembered is None or not remembered.counts(self._clock()):
            remembered = await self._verified(token)
            self._remember(digest, remembered)
        if remembered.caller.expires_at <= self._clock():
            raise Fault(FaultKind.AUTH_TOKEN_EXPIRED, EXPIRED)
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

    def _remember(self, digest: bytes, verified: _Remembered) -> None:
        self._remembered[digest] = verified
        self._remembered.move_to_end(digest)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        metrics.remembered_tokens.set(len(self._remembered))

    async def _verified(self, token: str) -> _Remembered:
        if len(token) > MAX_TOKEN_BYTES:
            raise _invalid(f"it is longer than {MAX_TOKEN_BYTES} bytes")
        if not _SHAPE.fullmatch(token):
            raise _invalid("it is no signed JWT")
        header, issuer = self._unverified(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise _invalid(f"its algorithm is none of {', '.join(sorted(ALGORITHMS))}")
        if not isinstance(key_id, str | None):
            raise _invalid("its kid is no text")
        try:
            key = await issuer.keys.find(key_id, algorithm)
        except KeysUnavailableError as error:
            text = f"The keys of the tokens' issuer can't be had, so no token can be verified: {error}"
            raise Fault(FaultKind.TOKEN_ISSUER_UNAVAILABLE, text) from None
        if key is None:
            raise _invalid("the issuer has no such key")
        claims = self._decoded(token, key.public, algorithm, issuer)
        return _Remembered(
            _caller(claims, self._clock_skew), issuer.keys, issuer.keys.generation, self._clock() + REMEMBERED_SECONDS
        )

    def _unverified(self, token: str) -> tuple[Mapping[str, Any], Issuer]:
        """The unverified header of a token, and its issuer. They only choose the key that verifies the token."""
        try:
            complete = jwt.decode_complete(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise _invalid("it is no signed JWT") from None
        named = complete["payload"].get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        issuer = issuer or self._issuers.get("")
        if issuer is None:
            raise _invalid("its issuer (iss) is not one whose tokens count here")
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
            raise Fault(FaultKind.AUTH_TOKEN_EXPIRED, EXPIRED) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise _invalid(_WHY.get(type(error), "its claims are not as they should be")) from None
        return claims


@dataclass(frozen=True, slots=True)
class _Remembered:
    caller: Caller
    keys: KeySource
    generation: int
    until: float

    def counts(self, now: float) -> bool:
        """Whether the result is still valid: its time is not over, and the issuer's keys have not changed."""
        return now < self.until and self.generation == self.keys.generation


_WHY: dict[type[Exception], str] = {
    jwt.InvalidSignatureError: "its signature is not the issuer's",
    jwt.InvalidAudienceError: "it is not meant for this sidecar (aud)",
    jwt.InvalidIssuerError: "its issuer (iss) is not one whose tokens count here",
    jwt.ImmatureSignatureError: "it does not count yet (nbf, iat)",
    jwt.MissingRequiredClaimError: "it lacks a claim (exp, iss or aud)",
}


def _caller(claims: Mapping[str, Any], clock_skew: float) -> Caller:
    name = next((claims[each] for each in ("client_id", "cid", "azp", "sub") if isinstance(claims.get(each), str)), "")
    return Caller.of(name[:MAX_NAME_LENGTH], _scopes(claims), min(float(claims["exp"]), LATEST) + clock_skew)


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """The scopes in the claim `scope`, or `scp` as some issuers call it; words in one text, or a list."""
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
                raise _invalid(f"its claim {claim} is neither a text nor a list of texts")
    return scopes


def _invalid(why: str) -> Fault:
    return Fault(FaultKind.INVALID_AUTH_TOKEN, f"{_INVALID}: {why}")
