"""Bearer tokens of clients: the issuers that settings name, and the principal of a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from mesh.rpc.token_callers import PeopleIssuer
from mesh.settings import WordList
from mesh.tokens.issuers import TokenBounds
from services.gateway.authentication.bearer_server import PROOF, TokenRefusedError
from services.gateway.authentication.principal import Principal

if TYPE_CHECKING:
    from mesh.tokens.verifying import Claims, TokenVerifier

INSUFFICIENT_SCOPE = "insufficient_scope"
UNAVAILABLE = "temporarily_unavailable"


class ClientIssuer(PeopleIssuer):
    """An issuer of tokens for Kafka clients."""

    principal_prefix: str = Field(default="", pattern=r"^\S*$")
    """Stands before the principal's name. Empty, as on brokers: then a name of the issuer is also that of a user."""
    required_scopes: WordList = ()
    """Scopes that a token must have, all of them. Spaces stand between them, as in tokens (RFC 6749), or commas."""

    @field_validator("required_scopes")
    @classmethod
    def _are_words(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word for scope in scopes for word in scope.split())


class ClientTokens:
    """The principals of tokens."""

    def __init__(
        self, issuers: Sequence[ClientIssuer], bounds: TokenBounds, on_request: Callable[[str], object] = str
    ) -> None:
        """`on_request` gets the outcome of each request for keys. OSError if a file of the settings can't be used."""
        # cryptography takes 10 MB, and few gateways take tokens
        from mesh.tokens.verifying import TokenVerifier, issuers_of

        self._settings = {each.issuer: each for each in issuers}
        self._verifier: TokenVerifier[tuple[Principal, float]] = TokenVerifier(
            issuers_of(issuers, bounds, on_request), self._principal, clock_skew=bounds.token_clock_skew_s
        )

    async def check(self, token: str) -> tuple[Principal, float]:
        """The principal, and when the token expires. Raises TokenRefusedError."""
        from mesh.tokens.verifying import ExpiredTokenError, InvalidTokenError, IssuerUnavailableError

        try:
            principal, expires_at = await self._verifier.caller(token)
        except InvalidTokenError as error:
            raise TokenRefusedError(f"the token is not valid: {error}") from None
        except ExpiredTokenError:
            raise TokenRefusedError("the token has expired") from None
        except IssuerUnavailableError as error:
            raise TokenRefusedError(f"the keys of the token's issuer can't be had: {error}", UNAVAILABLE) from None
        return principal, expires_at

    async def close(self) -> None:
        await self._verifier.close()

    def _principal(self, claims: Claims) -> tuple[Principal, float]:
        from mesh.tokens.verifying import scopes_of

        issuer = self._settings[claims.issuer]
        name, groups = issuer.person(claims.said)
        scopes = scopes_of(claims.said)
        if not set(issuer.required_scopes) <= set(scopes):
            needed = " ".join(issuer.required_scopes)
            raise TokenRefusedError(f"the token lacks a scope (needed: {needed})", INSUFFICIENT_SCOPE, needed)
        return Principal(name, PROOF, groups, tuple(scopes)), claims.expires_at
