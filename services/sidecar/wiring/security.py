"""The security that the settings ask for: the trusted issuers, and the listener's certificate.

Cryptography is loaded only if the settings need it: it takes 10 MB, a tenth of a sidecar without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.server_certificate import ServerCertificate
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry import metrics

if TYPE_CHECKING:
    from services.sidecar.security.tokens import TokenVerifier


def token_verifier(settings: SidecarSettings) -> TokenVerifier | None:
    """The verifier of tokens; None if the sidecar asks no caller for a token."""
    if not settings.token_issuers:
        return None
    from mesh.tokens.verifying import issuers_of
    from services.sidecar.security.tokens import TokenVerifier

    issuers = issuers_of(
        settings.token_issuers, settings, lambda outcome: metrics.token_key_requests.labels(outcome).inc()
    )
    return TokenVerifier(issuers, clock_skew=settings.token_clock_skew_s)


def server_certificate(settings: SidecarSettings) -> ServerCertificate | None:
    """The listener's certificate; None if the listener speaks plain HTTP. Reads files, and makes the files of the
    sidecar's own certificate: TlsFilesError."""
    files = settings.tls_files
    if files is None and settings.tls:
        from services.sidecar.security.own_certificate import own_certificate

        assert settings.state_dir is not None
        own = own_certificate(settings.state_dir)
        files = settings.tls_files_of(own.certificate, own.key)
    return None if files is None else ServerCertificate(files)
