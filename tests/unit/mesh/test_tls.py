"""TLS contexts from a cluster's security: what is loaded, and what is said of what can't be."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from mesh.connection_security import Tls
from mesh.tls import TlsSettingsError, tls_context
from tests.fixtures.certificates import Authority

PASSWORD = "hunter2-of-the-key"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A client's certificate whose key is encrypted; the password comes from a file."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    me = authority.sign("me", password=PASSWORD)
    (folder / "password").write_text(PASSWORD)
    return Tls(
        ca_location=str(authority.certificate),
        certificate_location=str(me.certificate),
        key_location=str(me.key),
        key_password=f"${{file:{folder}/password}}",
    )


def test_authority_and_certificate_from_files(tls: Tls) -> None:
    context = tls_context(tls)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1


def test_the_same_as_text(tls: Tls) -> None:
    texts = Tls(
        ca_pem=Path(tls.ca_location).read_text(),
        certificate_pem=Path(tls.certificate_location).read_text(),
        key_pem=f"${{file:{tls.key_location}}}",
        key_password=tls.key_password,
    )
    assert len(tls_context(texts).get_ca_certs()) == 1


def test_certificate_and_key_in_one_text(tls: Tls) -> None:
    both = Path(tls.certificate_location).read_text() + Path(tls.key_location).read_text()
    tls_context(Tls(certificate_pem=both, key_password=tls.key_password))


@pytest.mark.parametrize("location", ["", "probe"])
def test_the_systems_authorities_by_default(location: str) -> None:
    assert tls_context(Tls(ca_location=location)).verify_mode is ssl.CERT_REQUIRED


def test_verification_in_parts() -> None:
    any_host = tls_context(Tls(identifies_host=False))
    assert (any_host.verify_mode, any_host.check_hostname) == (ssl.CERT_REQUIRED, False)
    anybody = tls_context(Tls(verifies_broker=False))
    assert (anybody.verify_mode, anybody.check_hostname) == (ssl.CERT_NONE, False)


def test_what_cannot_be_used_is_named_without_its_content(tls: Tls, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hunter2")
    other = Authority(tmp_path).sign("other")
    for wrong, said in (
        (replace(tls, ca_location="/not/there"), r"ssl\.ca\.location: .*No such file"),
        (replace(tls, ca_location=str(nonsense)), r"ssl\.ca\.location: holds no certificate"),
        (replace(tls, ca_pem="hunter2"), r"ssl\.ca\.pem: has no certificate"),
        (replace(tls, ca_pem="${env:NOT_THERE_AT_ALL}"), r"ssl\.ca\.pem: .*environment variable"),
        (replace(tls, certificate_location="/not/there"), r"ssl\.certificate\.location: /not/there: No such file"),
        (replace(tls, key_location="/not/there"), r"ssl\.key\.location: /not/there: No such file"),
        (replace(tls, key_location=str(nonsense)), r"ssl\.key\.location"),
        (replace(tls, key_location=str(other.key)), r"ssl\.key\.location.*MISMATCH"),
        (replace(tls, key_password="hunter3"), r"ssl\.key\.password does not open"),
        (replace(tls, key_password=""), r"ssl\.key\.password does not open"),
        (replace(tls, key_password="${file:/not/there}"), r"ssl\.key\.password: .*can't be read"),
    ):
        with pytest.raises(TlsSettingsError, match=said) as fault:
            tls_context(wrong)
        assert "hunter" not in str(fault.value)
