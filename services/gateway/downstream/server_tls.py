"""TLS towards clients: the certificate as its files are now, and which host a client has asked for.

Theory of operation
1. All listeners share one context whose only task is to greet: as soon as a client has said hello, it goes on with the
   context that was loaded last. So a renewed certificate, or other authorities of clients, count for every connection
   that is made from then on, and for no other.
2. The files are looked at every few seconds. What can't be loaded is said once, and what was loaded last stays.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import structlog

from services.gateway import metrics
from services.gateway.server_certificate import TlsFiles, TlsFilesError, load

log = structlog.get_logger(__name__)

_begun, _done = metrics.tls_handshakes.labels("begun"), metrics.tls_handshakes.labels("done")

LOOK_S: Final = 5.0
HANDSHAKE_TIMEOUT_S: Final = 10.0

Seen = tuple[tuple[int, int, int] | None, ...]
"""Of each file: inode, time of change, size; None for one that is not there."""


class ServerTls:
    """See above. Loads the files when it is made: TlsFilesError."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _look(files)
        self._current = load(files)
        self._hosts: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()
        self.context = load(files)
        """For servers."""
        self.context.sni_callback = self._greet

    def _greet(self, connection: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
        _begun.inc()
        connection.context = self._current
        if host:
            self._hosts[connection] = host

    def host_asked_for(self, transport: asyncio.BaseTransport) -> str:
        """By the client of this connection, which has been let in; empty if it did not say."""
        _done.inc()
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        return "" if connection is None else self._hosts.get(connection, "")

    async def follow_files(self) -> None:
        """Never ends by itself."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._look_again)

    def _look_again(self) -> None:
        seen = _look(self._files)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._current = load(self._files)
        except TlsFilesError as error:
            log.error("certificates could not be loaded again, the last ones serve", reason=str(error))
        else:
            log.info("certificates loaded again", certificate=str(self._files.certificate))


def _look(files: TlsFiles) -> Seen:
    return tuple(_stat(path) for path in (files.certificate, files.key, files.client_ca) if path is not None)


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
