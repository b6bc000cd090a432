"""A server's certificate, from the files that its settings name, as they are now.

Theory of operation
1. All listeners share one context whose only task is to greet: as soon as a client has said hello, it goes on with the
   context that was loaded last. So a renewed certificate, other authorities of clients, or a longer list of revoked
   certificates count for every connection that is made from then on, and for no other.
2. The files are checked twice a second. A file that can't be loaded is logged once, and the last certificate stays.
3. A client that must show a certificate resumes no session of TLS, because OpenSSL would not check the certificate
   again.
"""

import asyncio
import hashlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from mesh.secret_references import UnresolvedReferenceError, resolve
from mesh.whole_files import FileVersion, file_version

LOOK_S: Final = 0.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files that the settings name."""

    certificate: Path
    """With the authorities between it and the one that clients trust."""
    key: Path
    key_password: str = field(default="", repr=False)
    """May be a reference."""
    client_ca: Path | None = None
    """Clients must show a certificate of one of these authorities."""
    client_may_have_none: bool = False
    """A client without a certificate is let in all the same; one with a certificate of others is not."""
    client_crl: Path | None = None
    """The lists of revoked certificates (RFC 5280, section 5), one for each of the authorities. A certificate of an
    authority whose list is missing or out of date counts as revoked."""


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
            context.verify_mode = ssl.CERT_OPTIONAL if files.client_may_have_none else ssl.CERT_REQUIRED
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        if files.client_crl is not None:
            place = f"tls_client_crl {files.client_crl}"
            _refuse_revoked(context, files.client_crl)
    except ssl.SSLError as error:
        reason = "not in PEM, do not belong together, or tls_key_password does not open the key"
        raise TlsFilesError(f"{place}: {reason} ({error.reason or 'unknown format'})") from None
    except UnresolvedReferenceError as error:
        raise TlsFilesError(f"tls_key_password: {error}") from None
    except OSError as error:
        raise TlsFilesError(f"{place}: {error.filename or ''} {error.strerror or type(error).__name__}") from None
    return context


def _refuse_revoked(context: ssl.SSLContext, lists: Path) -> None:
    before = context.cert_store_stats()
    context.load_verify_locations(lists)
    after = context.cert_store_stats()
    if after["crl"] == 0 or after["x509"] != before["x509"]:  # an authority in this file would be trusted
        raise TlsFilesError(f"tls_client_crl {lists}: holds something else than lists of revoked certificates in PEM")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


class ServerCertificate:
    """See above. Loads the files when it is made: TlsFilesError."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _look(files)
        self._current = self.read(files)
        self.context = load(files)
        """For servers."""
        self.context.sni_callback = self._greet

    def _greet(self, connection: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._current

    async def follow_files(self) -> None:
        """Never ends by itself."""
        while True:
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(self._look_again):
                self.changed()

    async def reload(self) -> None:
        """Now, whether files look changed or not. TlsFilesError: the last ones serve."""
        self._current = await asyncio.to_thread(self.read, self._files)
        self.changed()

    def read(self, files: TlsFiles) -> ssl.SSLContext:
        """For connections from now on. Runs beside the event loop. TlsFilesError."""
        return load(files)

    def changed(self) -> None:
        """Other files serve from now on."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate in the file, in hexadecimal; empty while there is none to be read."""
        try:
            text = self._files.certificate.read_text(encoding="ascii", errors="replace")
            first = text[text.index(ssl.PEM_HEADER) : text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
        except (OSError, ValueError):
            return ""

    def _look_again(self) -> bool:
        """Whether other files serve now."""
        seen = _look(self._files)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._current = self.read(self._files)
        except TlsFilesError as error:
            log.error("certificates could not be loaded again, the last ones serve", reason=str(error))
            return False
        log.info("certificates loaded again", certificate=str(self._files.certificate))
        return True


def _look(files: TlsFiles) -> tuple[FileVersion | None, ...]:
    paths = (files.certificate, files.key, files.client_ca, files.client_crl)
    return tuple(file_version(path) for path in paths if path is not None)
