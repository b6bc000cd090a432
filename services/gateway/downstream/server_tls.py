"""TLS towards clients: the certificate as its files are now, which host a client has asked for, whom lists revoke."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from mesh.server_certificate import ServerCertificate, TlsFiles, TlsFilesError
from services.gateway import metrics
from services.gateway.authentication.revoked_certificates import RevokedCertificates

_accepted, _begun, _done = (metrics.tls_handshakes.labels(stage) for stage in ("accepted", "begun", "done"))

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""A client that has not proved itself by then is cut."""


class ServerTls(ServerCertificate):
    """Loads the files when it is made: TlsFilesError."""

    def __init__(self, files: TlsFiles, on_changed: Callable[[], None] = lambda: None) -> None:
        """`on_changed`: other files serve from now on, so other certificates may be revoked."""
        self._revoked = RevokedCertificates()
        self._on_changed = on_changed
        super().__init__(files)
        self._hosts: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()

    def read(self, files: TlsFiles) -> ssl.SSLContext:
        context = super().read(files)
        if files.client_crl is not None:
            try:
                self._revoked = RevokedCertificates(files.client_crl.read_bytes())
            except (OSError, ValueError) as error:
                raise TlsFilesError(f"tls_client_crl {files.client_crl}: {error}") from None
        return context

    def changed(self) -> None:
        self._on_changed()

    def accepted(self) -> None:
        """A client has come, and may say hello."""
        _accepted.inc()

    def has_revoked(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the client of this connection has shown a certificate that is revoked by now."""
        shown = transport.get_extra_info("peercert")
        if not shown:
            return False
        connection: ssl.SSLObject = transport.get_extra_info("ssl_object")
        return self._revoked.has(int(shown["serialNumber"], 16), lambda: connection.getpeercert(True))

    def _greet(self, connection: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
        _begun.inc()
        super()._greet(connection, host, _)
        if host:
            self._hosts[connection] = host

    def host_asked_for(self, transport: asyncio.BaseTransport) -> str:
        """The host name that the client of this connection has asked for (SNI); empty if it asked for none."""
        _done.inc()
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        return "" if connection is None else self._hosts.get(connection, "")
