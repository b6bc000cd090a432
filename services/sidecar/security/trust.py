"""Whom the settings let in: issuers of tokens, and who is on this machine anyway."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator

from mesh.settings import WordList, is_loopback


class TokenIssuer(BaseModel):
    """Whose tokens count."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jwks_url: str
    """Where its keys are: https, or http on this machine."""
    issuer: str = ""
    """Claim `iss` of its tokens; empty for whatever they say, which one issuer alone may have."""
    audience: WordList = ()
    """One of these is in claim `aud` of tokens that are meant for this sidecar; empty: that does not matter."""

    @field_validator("jwks_url")
    @classmethod
    def _nobody_in_between(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            return url
        raise ValueError("keys that anyone on the way could replace are none: give an https address")
