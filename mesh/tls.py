"""TLS to brokers: from a cluster's security to an `ssl.SSLContext`. Reads files; call it from a worker thread."""

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from mesh.connection_security import SYSTEM_CA, Tls
from mesh.secret_references import UnresolvedReferenceError, resolve


class TlsSettingsError(Exception):
    """A certificate, key or authority can't be used. The message names the property, never a content."""


def tls_context(tls: Tls) -> ssl.SSLContext:
    """TLS 1.2 or newer, with the authorities and the certificate that are configured."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verifies_broker and tls.identifies_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.verifies_broker else ssl.CERT_NONE
    _trust(context, "ssl", tls.ca_pem, tls.ca_location)
    _identify(context, tls)
    return context


def https_context(ca_pem: str, ca_location: str) -> ssl.SSLContext:
    """For HTTPS on behalf of a cluster (`https.ca.*`): the authorities of its brokers don't count there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _trust(context, "https", ca_pem, ca_location)
    return context


def _trust(context: ssl.SSLContext, prefix: str, ca_pem: str, ca_location: str) -> None:
    if ca_pem:
        with _explained(f"{prefix}.ca.pem", "has no certificate in PEM"):
            context.load_verify_locations(cadata=resolve(ca_pem))
        return
    with _explained(f"{prefix}.ca.location", "holds no certificate in PEM"):
        location = resolve(ca_location)
        if location in ("", SYSTEM_CA):
            context.load_default_certs()
        elif Path(location).is_dir():
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)


def _identify(context: ssl.SSLContext, tls: Tls) -> None:
    if not tls.has_certificate:
        return
    with _explained("ssl.key.password", "can't be used"):
        password = resolve(tls.key_password)
    certificate = "ssl.certificate.pem" if tls.certificate_pem else "ssl.certificate.location"
    key = "ssl.key.pem" if tls.key_pem else "ssl.key.location" if tls.key_location else certificate
    reason = "no certificate in PEM with its key, or ssl.key.password does not open the key"
    with (
        _file(certificate, tls.certificate_pem, tls.certificate_location) as certificate_file,
        _file(key, tls.key_pem, tls.key_location) as key_file,
        _explained(certificate if key == certificate else f"{certificate} and {key}", reason),
    ):
        # An empty password is given too: without one OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate_file, key_file or None, password)


@contextmanager
def _file(name: str, pem: str, location: str) -> Iterator[str]:
    """The path of a PEM text or file; OpenSSL reads certificates and keys from files alone."""
    with _explained(name, "can't be read"):
        text, path = resolve(pem), resolve(location)
        if not text and path:
            Path(path).open("rb").close()  # OpenSSL's own error would not say which of two files is missing
    if not text:
        yield path
        return
    with _nameless_file() as file:
        file.write(text.encode())
        file.flush()
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _nameless_file() -> BinaryIO:
    """A file that no other process can open by a name, and that ends with us: keys are written to it."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("pem"), "w+b")
    else:  # noqa: RET505  (mypy looks at one platform at a time)
        return cast(BinaryIO, tempfile.TemporaryFile())


@contextmanager
def _explained(name: str, unusable: str) -> Iterator[None]:
    try:
        yield
    except UnresolvedReferenceError as error:
        raise TlsSettingsError(f"{name}: {error}") from None
    except ssl.SSLError as error:
        raise TlsSettingsError(f"{name}: {unusable} ({error.reason or 'unknown format'})") from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise TlsSettingsError(f"{name}: {place}{error.strerror or type(error).__name__}") from None
    except ValueError as error:
        raise TlsSettingsError(f"{name}: {unusable} ({type(error).__name__})") from None
