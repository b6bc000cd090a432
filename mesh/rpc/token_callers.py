"""Callers of gRPC who prove who they are by a bearer token (OIDC): the settings, and the principal of a token.

Such a caller is a person or a program, never a member. Tokens are taken on an address of their own, by TLS: gRPC either
asks every caller of an address for a certificate, or none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import grpc
from pydantic import Field, field_validator

from mesh.rpc.errors import RpcError, unavailable
from mesh.rpc.principals import RESERVED, Principal
from mesh.rpc.tls import RpcTlsSettings
from mesh.settings import Address
from mesh.tokens.issuers import TokenBounds, TokenIssuer

if TYPE_CHECKING:
    from mesh.tokens.verifying import Claims, TokenVerifier

AUTHORIZATION = "authorization"
NAME = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
MOST_GROUPS = 1_000
"""Groups of one token; each call tries the grants of each."""


class PeopleIssuer(TokenIssuer):
    """An issuer of tokens for people and programs."""

    issuer: str = Field(min_length=1)
    """The claim `iss` of the issuer's tokens."""
    principal_claim: str = "sub"
    """The claim with the principal: one that the issuer never gives to another, and that its users can't change."""
    principal_prefix: str = Field(default="oidc:", pattern=r"^\S*$")
    """Stands before the principal, so that no name of the issuer is one in a certificate."""
    groups_claim: str = "groups"
    """The claim with the groups: a list of names."""

    def person(self, said: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """The principal's name and groups by the claims of a valid token. Raises InvalidTokenError."""
        from mesh.tokens.verifying import InvalidTokenError

        told = said.get(self.principal_claim)
        name = f"{self.principal_prefix}{told}"
        if not isinstance(told, str) or not NAME.fullmatch(told) or RESERVED.fullmatch(name):
            raise InvalidTokenError(f"its claim {self.principal_claim} is no name without spaces")
        groups = said.get(self.groups_claim, [])
        if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
            raise InvalidTokenError(f"its claim {self.groups_claim} is no list of names")
        if len(groups) > MOST_GROUPS:
            raise InvalidTokenError(f"it names {len(groups)} groups, more than {MOST_GROUPS}")
        return name, tuple(groups)

    @field_validator("audience")
    @classmethod
    def _is_for_this_mesh(cls, audience: tuple[str, ...]) -> tuple[str, ...]:
        if not audience:
            raise ValueError("is empty, and so a token for any other service of the issuer would count here: name one")
        return audience


def is_of_a_program(said: Mapping[str, Any]) -> bool:
    """Whether a token was given to a program that acts for itself.

    Its subject is then the client itself (RFC 9068, section 5); Entra says so in `idtyp`.
    """
    subject = said.get("sub")
    return said.get("idtyp") == "app" or (subject is not None and subject in (said.get("client_id"), said.get("azp")))


class RpcTokenSettings(TokenBounds, RpcTlsSettings):
    """The part of a service's settings that is about tokens of callers."""

    token_issuers: tuple[PeopleIssuer, ...] = ()
    """The issuers whose bearer tokens count, with `TOKEN_LISTEN`; empty: no token counts."""
    token_listen: Address | None = None
    """gRPC by TLS for callers with bearer tokens, without certificates: see `docs/how-to/roles.md#bearer-tokens`."""

    @field_validator("token_issuers")
    @classmethod
    def _told_apart(cls, issuers: tuple[PeopleIssuer, ...]) -> tuple[PeopleIssuer, ...]:
        if len({each.issuer for each in issuers}) < len(issuers):
            raise ValueError("two of them have the same issuer, so that a token would belong to both")
        return issuers

    def check_tokens(self) -> None:
        """ValueError if the settings about tokens do not belong together."""
        if bool(self.token_issuers) != (self.token_listen is not None):
            raise ValueError("token_issuers and token_listen belong together: set both, or neither")
        if self.token_issuers and self.rpc_tls_folder is None:
            raise ValueError("tokens are taken by TLS alone, because others could read them: set rpc_tls_folder, too")


class TokenCallers:
    """The principals of tokens."""

    def __init__(self, settings: RpcTokenSettings) -> None:
        """OSError if a file of the settings can't be used."""
        # cryptography takes 10 MB, and few installations take tokens
        from mesh.tokens.verifying import TokenVerifier, issuers_of

        self._settings = {each.issuer: each for each in settings.token_issuers}
        self._verifier: TokenVerifier[Principal] = TokenVerifier(
            issuers_of(settings.token_issuers, settings), self._principal, clock_skew=settings.token_clock_skew_s
        )

    async def principal(self, authorization: str) -> Principal:
        """The caller of the metadata `authorization`. RpcError if the token is no valid one, or can't be verified."""
        from mesh.tokens.verifying import ExpiredTokenError, InvalidTokenError, IssuerUnavailableError

        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise _unknown("the metadata authorization is no bearer token: send `Bearer TOKEN`")
        try:
            return await self._verifier.caller(token.strip())
        except InvalidTokenError as error:
            raise _unknown(f"the bearer token is not valid: {error}") from None
        except ExpiredTokenError:
            raise _unknown("the bearer token has expired: get a new one") from None
        except IssuerUnavailableError as error:
            text = f"the keys of the token's issuer can't be had, so that no token can be verified: {error}"
            raise unavailable("ISSUER_UNAVAILABLE", text) from None

    async def close(self) -> None:
        await self._verifier.close()

    def _principal(self, claims: Claims) -> Principal:
        name, groups = self._settings[claims.issuer].person(claims.said)
        return Principal.with_token(name, groups, claims.expires_at, is_automation=is_of_a_program(claims.said))


def _unknown(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.UNAUTHENTICATED, message)
