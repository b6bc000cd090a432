"""The certificate that a sidecar makes for itself."""

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from mesh.server_certificate import TlsFiles, load
from services.sidecar.security import own_certificate as made
from services.sidecar.security.own_certificate import own_certificate


def seen(files: TlsFiles) -> bytes:
    return files.certificate.read_bytes()


def test_it_is_for_this_machine_and_can_be_served(tmp_path: Path) -> None:
    files = own_certificate(tmp_path / "state")
    load(files)
    certificate = x509.load_pem_x509_certificate(seen(files))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc < datetime.timedelta(days=398)


def test_nobody_else_reads_the_key(tmp_path: Path) -> None:
    assert stat.S_IMODE(own_certificate(tmp_path).key.stat().st_mode) == 0o600


def test_it_stays_the_same_from_start_to_start(tmp_path: Path) -> None:
    first = seen(own_certificate(tmp_path))
    assert seen(own_certificate(tmp_path)) == first


def test_it_is_made_anew_when_its_end_is_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "LIFE", made.RENEW_BEFORE - datetime.timedelta(days=1))
    first = seen(own_certificate(tmp_path))
    assert seen(own_certificate(tmp_path)) != first


@pytest.mark.parametrize("name", [made.CERTIFICATE, made.KEY])
@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\n", None])
def test_it_is_made_anew_when_a_file_is_gone_or_broken(tmp_path: Path, name: str, content: str | None) -> None:
    own_certificate(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    load(own_certificate(tmp_path))


def test_a_key_of_another_certificate_is_not_kept(tmp_path: Path) -> None:
    own_certificate(tmp_path / "a")
    other = own_certificate(tmp_path / "b")
    (tmp_path / "a" / made.KEY).write_bytes(other.key.read_bytes())
    load(own_certificate(tmp_path / "a"))
