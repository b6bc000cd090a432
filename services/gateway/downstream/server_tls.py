"""TLS towards clients: the certificate as its files are now, and which host a client has asked for."""

import asyncio
import ssl
from typing import Final
from weakref import WeakKeyDictionary

from mesh.server_certificate import ServerCertificate, TlsFiles
from services.gateway import metrics

_begun, _done = metrics.tls_handshakes.labels("begun"), metrics.tls_handshakes.labels("done")

HANDSHAKE_TIMEOUT_S: Final = 10.0


class ServerTls(ServerCertificate):
    """Loads the files when it is made: TlsFilesError."""

    def __init__(self, files: TlsFiles) -> None:
        super().__init__(files)
        self._hosts: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()

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
