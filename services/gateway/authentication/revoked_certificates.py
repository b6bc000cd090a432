"""The certificates that lists of authorities revoke (RFC 5280, section 5), for clients that are let in already.

OpenSSL reads the same lists, and refuses a revoked certificate in a handshake. It knows nothing of connections that are
open. Whether a list is genuine and in date is OpenSSL's to check: a list that is neither lets no client in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.S)


class RevokedCertificates:
    """By serial number, then by authority: each authority counts for itself."""

    def __init__(self, lists: bytes = b"") -> None:
        """`lists` in PEM; what is no list is skipped. ValueError: one of them can't be read."""
        self._issuers: dict[int, list[Any]] = {}
        for found in _LIST.finditer(lists):
            # cryptography takes 10 MB, and few gateways have lists
            from cryptography.x509 import load_pem_x509_crl

            revoking = load_pem_x509_crl(found[0])
            for entry in revoking:
                self._issuers.setdefault(entry.serial_number, []).append(revoking.issuer)

    def has(self, serial_number: int, certificate: Callable[[], bytes | None]) -> bool:
        """`certificate` in DER: it is asked for only if some authority has revoked the number."""
        issuers = self._issuers.get(serial_number)
        shown = certificate() if issuers else None
        if issuers is None or shown is None:
            return False
        from cryptography.x509 import load_der_x509_certificate

        return load_der_x509_certificate(shown).issuer in issuers
