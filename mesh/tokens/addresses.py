"""The address of an issuer's keys, from the document that the issuer publishes about itself. No I/O.

OpenID Connect Discovery 1.0, sections 4.1 and 4.3; RFC 8414 has the same members.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from mesh.settings import is_loopback

_PATH = "/.well-known/openid-configuration"


class NotKeysError(ValueError):
    """The issuer's answer leads to no set of keys."""


def document_url(issuer: str) -> str:
    """The address of the issuer's document."""
    return issuer.removesuffix("/") + _PATH


def keys_url(document: object, issuer: str) -> str:
    """The address of the keys in the issuer's document. NotKeysError if the document is another issuer's, or has no
    address that nobody on the way can change.
    """
    members = document if isinstance(document, dict) else {}
    if members.get("issuer") != issuer:
        raise NotKeysError(f"its document {document_url(issuer)} is not about the issuer {issuer}")
    url = members.get("jwks_uri")
    if not isinstance(url, str) or not is_untouched(url):
        raise NotKeysError(f"the jwks_uri in its document {document_url(issuer)} is no https address")
    return url


def is_untouched(url: str) -> bool:
    """Whether nobody on the way can change an answer from this address: by https, or from this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))
