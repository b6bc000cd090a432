"""The gateway's own certificate, from the files that its settings name."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from mesh.secret_references import UnresolvedReferenceError, resolve


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What the settings name."""

    certificate: Path
    """With the authorities between it and the one that clients trust."""
    key: Path
    key_password: str = field(default="", repr=False)
    """May be a reference."""
    client_ca: Path | None = None
    """Clients must show a certificate of one of these authorities."""


class TlsFilesError(ValueError):
    """A certificate, a key or an authority can't be used: which setting, which file, and why."""


def load(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 or newer; reads files. Raises TlsFilesError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    place = f"tls_certificate {files.certificate}, tls_key {files.key}"
    try:
        for path in (files.certificate, files.key):
            path.open("rb").close()  # OpenSSL's own error would not say which of two files is missing
        # An empty password is given too: without one OpenSSL would ask at the terminal.
        context.load_cert_chain(files.certificate, files.key, resolve(files.key_password))
        if files.client_ca is not None:
            place = f"tls_client_ca {files.client_ca}"
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLError as error:
        reason = "not in PEM, do not belong together, or tls_key_password does not open the key"
        raise TlsFilesError(f"{place}: {reason} ({error.reason or 'unknown format'})") from None
    except UnresolvedReferenceError as error:
        raise TlsFilesError(f"tls_key_password: {error}") from None
    except OSError as error:
        raise TlsFilesError(f"{place}: {error.filename or ''} {error.strerror or type(error).__name__}") from None
    return context
