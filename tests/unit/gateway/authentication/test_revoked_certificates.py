"""Lists of revoked certificates: which certificates they are about."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from services.gateway.authentication.revoked_certificates import RevokedCertificates
from tests.fixtures.certificates import Authority, Signed


def has(lists: RevokedCertificates, signed: Signed, serial_number: int = 0) -> bool:
    pem = signed.certificate.read_bytes()
    number = serial_number or load_pem_x509_certificate(pem).serial_number
    return lists.has(number, lambda: ssl.PEM_cert_to_DER_cert(pem.decode()))


def test_each_authority_revokes_its_own_certificates_alone(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "1", "first"), Authority(tmp_path / "2", "second")
    stolen, kept, other = first.sign("stolen"), first.sign("kept"), second.sign("other")
    lists = RevokedCertificates(first.revoked(stolen) + second.revoked())
    assert has(lists, stolen)
    assert not has(lists, kept)
    assert not has(lists, other)
    number = load_pem_x509_certificate(stolen.certificate.read_bytes()).serial_number
    assert not has(lists, other, number), "another authority may give the same number"


def test_a_list_that_can_not_be_read_is_a_fault() -> None:
    with pytest.raises(ValueError, match="parsing"):
        RevokedCertificates(b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
