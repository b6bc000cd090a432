"""The issuers of tokens that settings name."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from mesh.settings import WordList
from mesh.tokens.addresses import document_url, is_untouched


class TokenIssuer(BaseModel):
    """An issuer of valid tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jwks_url: str = ""
    """The address of the issuer's keys: https, or http on this machine. Empty: the issuer's document names the address
    (OpenID Connect Discovery: `ISSUER/.well-known/openid-configuration`)."""
    issuer: str = ""
    """The claim `iss` of the issuer's tokens. Empty accepts any `iss`, which only one issuer may have."""
    audience: WordList = ()
    """Audiences of this service: a token's claim `aud` must have one of them. Empty accepts any audience."""

    @model_validator(mode="after")
    def _nobody_in_between(self) -> Self:
        if self.jwks_url and not is_untouched(self.jwks_url):
            raise ValueError("jwks_url: keys that anyone on the way could replace are none: give an https address")
        if not self.jwks_url and not is_untouched(self.issuer):
            raise ValueError(
                f"issuer {self.issuer!r} is no https address, so {document_url('ISSUER')} cannot name its keys: "
                "give an https address in jwks_url"
            )
        return self


class TokenBounds(BaseModel):
    """The part of a service's settings that is about the verification of tokens."""

    token_clock_skew_s: int = Field(default=60, ge=0, le=600)
    """Seconds by which clocks of issuers may differ from the clock of this process."""
    token_keys_ca: Path | None = None
    """The authorities, in PEM, that may sign for issuers' addresses; empty: those of the system."""
    token_keys_max_age_ms: PositiveInt = 300_000
    """Milliseconds after which an issuer's keys are fetched again."""
    token_keys_max_stale_ms: PositiveInt = 86_400_000
    """Milliseconds that an issuer's keys count while the issuer is away."""
    token_keys_pause_ms: PositiveInt = 10_000
    """Milliseconds between two requests to an issuer; a token with an unknown key causes a request, too."""
    token_keys_timeout_ms: PositiveInt = 2_000
    """Milliseconds that an issuer's answer may take."""
