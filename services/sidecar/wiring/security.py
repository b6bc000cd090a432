"""The security that the settings ask for: the trusted issuers, and the listener's certificate.

Cryptography is loaded only if the settings need it: it takes 10 MB, a tenth of a sidecar without it.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.server_certificate import ServerCertificate, TlsFiles
from services.sidecar.settings import SidecarSettings

if TYPE_CHECKING:
    from services.sidecar.security.tokens import TokenVerifier


def token_verifier(settings: SidecarSettings) -> TokenVerifier | None:
    """The verifier of tokens; None if the sidecar asks no caller for a token."""
    if not settings.token_issuers:
        return None
    from services.sidecar.security.key_source import KeyBounds, KeySource
    from services.sidecar.security.tokens import Issuer, TokenVerifier

    bounds = KeyBounds(
        max_age=settings.token_keys_max_age_ms / 1000,
        max_stale=settings.token_keys_max_stale_ms / 1000,
        pause=settings.token_keys_pause_ms / 1000,
        timeout=settings.token_keys_timeout_ms / 1000,
    )
    trusted = _trusted(settings.token_keys_ca)
    issuers = [
        Issuer(KeySource(issuer.jwks_url, bounds, trusted), issuer.issuer, issuer.audience)
        for issuer in settings.token_issuers
    ]
    return TokenVerifier(issuers, clock_skew=settings.token_clock_skew_s)


def server_certificate(settings: SidecarSettings) -> ServerCertificate | None:
    """The listener's certificate; None if the listener speaks plain HTTP. Reads files, and makes the files of the
    sidecar's own certificate: TlsFilesError."""
    files = settings.tls_files
    if files is None and settings.tls:
        from services.sidecar.security.own_certificate import own_certificate

        assert settings.state_dir is not None
        own = own_certificate(settings.state_dir)
        files = TlsFiles(own.certificate, own.key, "", settings.tls_client_ca, settings.tls_client_optional)
    return None if files is None else ServerCertificate(files)


def _trusted(ca: Path | None) -> ssl.SSLContext:
    """The TLS context for issuers, with the authorities of a PEM file, or those that the system trusts."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # ssl.SSLError is one
        raise OSError(f"token_keys_ca {ca} can't be used: {error.strerror or type(error).__name__}") from None
