"""Mutual TLS between the members of the mesh: the files, and the credentials of servers and channels made of them.

A server asks every caller for a certificate. The certificate names the caller: see `principals.py`. A channel checks
that the server's certificate is of the host that the channel's address names.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import grpc
from pydantic import BaseModel, Field, field_validator

from mesh.whole_files import FileVersion, file_version

BEGINNING_S: Final = 0.5
"""Seconds within which gRPC begins a handshake that it has asked for. New connections wait so long for a renewal."""


class RpcTlsError(ValueError):
    """A file can't be used; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class RpcTls:
    """A folder with files in PEM, named as Kubernetes names those of a certificate: `ca.crt`, `tls.crt`, `tls.key`.

    A server reads them again when they have changed, so a renewed certificate needs no restart.
    """

    folder: Path

    @property
    def ca(self) -> Path:
        """The authorities that sign the certificates of all members and callers."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The certificate of this process, with the authorities between it and `ca`."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """The key of `certificate`, without a password."""
        return self.folder / "tls.key"

    def server_credentials(self, *, asks_callers: bool = True) -> grpc.ServerCredentials:
        """For a server that asks callers for a certificate, or does not. RpcTlsError if a file can't be used."""
        self.check()
        renewal = _Renewal(self)
        renewed = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewal.renewed)  # None says: as before
        return grpc.dynamic_ssl_server_credentials(
            self.configuration(), renewed, require_client_authentication=asks_callers
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel, with the files as they are now. RpcTlsError if a file can't be used."""
        self.check()
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), self.key.read_bytes(), self.certificate.read_bytes())

    def versions(self) -> tuple[FileVersion | None, ...]:
        """The versions of the three files, to see whether one has changed."""
        return tuple(file_version(path) for path in (self.ca, self.certificate, self.key))

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The files as they are now, for a server."""
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=self.ca.read_bytes())

    def check(self) -> None:
        """RpcTlsError if a file can't be used: gRPC would name neither the file nor the reason."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        place = f"certificate {self.certificate}, key {self.key}"
        try:
            for path in (self.certificate, self.key):
                path.open("rb").close()  # OpenSSL's own error would not say which of two files is missing
            # An empty password is given too: without one OpenSSL would ask at the terminal.
            context.load_cert_chain(self.certificate, self.key, "")
            place = f"ca {self.ca}"
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            reason = (
                f"not in PEM, do not belong together, or the key has a password ({error.reason or 'unknown format'})"
            )
            raise RpcTlsError(f"{place}: {reason}") from None
        except OSError as error:
            raise RpcTlsError(f"{error.filename or place}: {error.strerror or type(error).__name__}") from None


class _Renewal:
    """Gives a server the files that have changed.

    gRPC asks before each handshake, under a lock, and begins the handshake without the lock. A handshake that another
    thread is about to begin then finds the last configuration freed, and the process dies (grpc/grpc#36693). So an
    answer replaces the configuration only if the files have changed, and only after `BEGINNING_S`: gRPC asks nobody
    meanwhile, and handshakes that asked before have begun.
    """

    def __init__(self, tls: RpcTls) -> None:
        self._tls = tls
        self._served = tls.versions()

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """None: the server goes on with the last files, as these are the same, or can't be used."""
        versions = self._tls.versions()
        if versions == self._served:
            return None
        try:
            self._tls.check()
            configuration = self._tls.configuration()
        except (RpcTlsError, OSError):
            return None
        time.sleep(BEGINNING_S)
        self._served = versions
        return configuration


class RpcTlsSettings(BaseModel):
    """The part of a service's settings that is about gRPC to and from its neighbours."""

    rpc_tls_folder: Path | None = Field(
        default=None,
        description="Folder with `ca.crt`, `tls.crt` and `tls.key` for mutual TLS on gRPC; empty: plaintext. See "
        "`docs/how-to/member-certificates.md`.",
    )

    @field_validator("rpc_tls_folder")
    @classmethod
    def _has_usable_files(cls, folder: Path | None) -> Path | None:
        if folder is not None:
            RpcTls(folder).check()
        return folder

    @property
    def rpc_tls(self) -> RpcTls | None:
        """None: gRPC in plaintext, and nobody is asked who they are."""
        return None if self.rpc_tls_folder is None else RpcTls(self.rpc_tls_folder)
