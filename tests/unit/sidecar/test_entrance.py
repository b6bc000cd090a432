"""What of the entrance can be read again while it serves."""

import hashlib
import ssl
from pathlib import Path

import pytest

from mesh.server_certificate import TlsFilesError
from services.sidecar.entrance import Entrance
from services.sidecar.security.own_certificate import own_certificate
from services.sidecar.security.trust import TokenIssuer
from services.sidecar.settings import SidecarSettings


def test_without_certificate_and_issuers_there_is_nothing_to_read_again() -> None:
    entrance = Entrance(SidecarSettings(listen="127.0.0.1:0"))
    assert (entrance.modules(), entrance.fingerprint) == ({}, "")


async def test_keys_of_issuers_are_read_again() -> None:
    issuer = TokenIssuer(issuer="https://issuer.example", jwks_url="https://issuer.example/keys")
    entrance = Entrance(SidecarSettings(token_issuers=(issuer,)))
    assert list(entrance.modules()) == ["token-keys"]
    await entrance.close()


async def test_a_certificate_is_read_again_and_the_last_one_serves_when_it_cannot(tmp_path: Path) -> None:
    own, other = own_certificate(tmp_path / "own"), own_certificate(tmp_path / "other")
    settings = SidecarSettings(tls_certificate=own.certificate, tls_key=own.key)
    entrance = Entrance(settings)
    reload = entrance.modules()["certificate"]
    assert entrance.fingerprint == _fingerprint(own.certificate)

    own.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(TlsFilesError, match="belong together"):
        await reload()
    own.key.write_bytes(other.key.read_bytes())
    await reload()
    assert entrance.fingerprint == _fingerprint(other.certificate)


def _fingerprint(file: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read_text())).hexdigest()
