"""Bearer tokens of the sidecar's callers: from the Authorization header to the caller with its scopes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mesh.tokens.verifying import (
    Claims,
    ExpiredTokenError,
    InvalidTokenError,
    Issuer,
    IssuerUnavailableError,
    scopes_of,
)
from mesh.tokens.verifying import TokenVerifier as Verifier
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.security.callers import EXPIRED, Caller
from services.sidecar.telemetry import metrics

MAX_NAME_LENGTH = 200
_INVALID = "Incorrect signature or malformed token in authorization header"
_MISSING = "No Authorization header or the token is not bearer type"
"""The original's text."""


class TokenVerifier:
    """Verifies tokens and returns their callers."""

    def __init__(self, issuers: Sequence[Issuer], *, clock_skew: float, clock: Callable[[], float] = time.time) -> None:
        self._verifier = Verifier(
            issuers, _caller, clock_skew=clock_skew, clock=clock, on_remembered=metrics.remembered_tokens.set
        )
        self.reload = self._verifier.reload
        self.close = self._verifier.close

    async def caller(self, authorization: str) -> Caller:
        """The caller. Raises Fault: no token, an invalid token, or a token whose issuer can't be asked."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Fault(FaultKind.MISSING_AUTH_TOKEN, _MISSING)
        try:
            return await self._verifier.caller(token)
        except InvalidTokenError as error:
            raise Fault(FaultKind.INVALID_AUTH_TOKEN, f"{_INVALID}: {error}") from None
        except ExpiredTokenError:
            raise Fault(FaultKind.AUTH_TOKEN_EXPIRED, EXPIRED) from None
        except IssuerUnavailableError as error:
            text = f"The keys of the tokens' issuer can't be had, so no token can be verified: {error}"
            raise Fault(FaultKind.TOKEN_ISSUER_UNAVAILABLE, text) from None


def _caller(claims: Claims) -> Caller:
    said = claims.said
    name = next((said[each] for each in ("client_id", "cid", "azp", "sub") if isinstance(said.get(each), str)), "")
    return Caller.of(name[:MAX_NAME_LENGTH], scopes_of(said), claims.expires_at)
