"""The parties that the settings trust: issuers of tokens, and callers on this machine."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator

from mesh.settings import WordList, is_loopback


class TokenIssuer(BaseModel):
    """An issuer of valid tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jwks_url: str
    """The address of the issuer's keys: https, or http on this machine."""
    issuer: str = ""
    """The claim `iss` of the issuer's tokens. Empty accepts any `iss`, which only one issuer may have."""
    audience: WordList = ()
    """Audiences of this sidecar: a token's claim `aud` must have one of them. Empty accepts any audience."""

    @field_validator("jwks_url")
    @classmethod
    def _nobody_in_between(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            return url
        raise ValueError("keys that anyone on the way could replace are none: give an https address")
