"""The key that a member signs with, and the authorities that it trusts: the present files of its certificate."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509

from mesh.event_log.signatures import Signatures, Signer
from mesh.rpc import events
from mesh.rpc.tls import RpcTls
from mesh.whole_files import FileVersion


class MemberKeys:
    """Reads the files again when they have changed. While they can't be used, the last ones count.

    OSError or ValueError if the first files can't be used.
    """

    def __init__(self, tls: RpcTls) -> None:
        self._tls = tls
        self._versions: tuple[FileVersion | None, ...] = tls.versions()
        self._signer, self._authorities = self._read()

    @property
    def key_id(self) -> bytes:
        return self._present()[0].key_id

    @property
    def subject(self) -> str:
        """The name in the certificate, as RFC 4514 writes it."""
        return self._present()[0].subject

    def signature(self, word: str, body: bytes, *, shows: bool) -> events.Signature:
        return self._present()[0].signature(word, body, shows=shows)

    def authorities(self) -> Sequence[x509.Certificate]:
        return self._present()[1]

    def signatures(self, role: str, shown: Sequence[Sequence[bytes]] = ()) -> Signatures:
        """The check of one reading of what members of this role write."""
        return Signatures(self.authorities, role, shown)

    def _present(self) -> tuple[Signer, Sequence[x509.Certificate]]:
        versions = self._tls.versions()
        if versions != self._versions:
            try:
                self._signer, self._authorities = self._read()
            except (OSError, ValueError):
                return self._signer, self._authorities  # files that are being replaced do not fit for a moment
            self._versions = versions
        return self._signer, self._authorities

    def _read(self) -> tuple[Signer, Sequence[x509.Certificate]]:
        signer = Signer.of_pem(self._tls.key.read_bytes(), self._tls.certificate.read_bytes())
        return signer, x509.load_pem_x509_certificates(self._tls.ca.read_bytes())
