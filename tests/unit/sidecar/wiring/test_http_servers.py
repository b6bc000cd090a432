"""The certificate and the token keys can be loaded again while the servers serve."""

import hashlib
import ssl
from pathlib import Path

import pytest

from mesh.server_certificate import TlsFilesError
from mesh.tokens.issuers import TokenIssuer
from services.sidecar.security.own_certificate import own_certificate
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.http_servers import HttpServers


def test_without_certificate_and_issuers_there_is_nothing_to_read_again() -> None:
    servers = HttpServers(SidecarSettings(listen="127.0.0.1:0"))
    assert (servers.modules(), servers.fingerprint) == ({}, "")


async def test_keys_of_issuers_are_read_again() -> None:
    issuer = TokenIssuer(issuer="https://issuer.example", jwks_url="https://issuer.example/keys")
    servers = HttpServers(SidecarSettings(token_issuers=(issuer,)))
    assert list(servers.modules()) == ["token-keys"]
    await servers.close()


async def test_a_certificate_is_read_again_and_the_last_one_serves_when_it_cannot(tmp_path: Path) -> None:
    own, other = own_certificate(tmp_path / "own"), own_certificate(tmp_path / "other")
    settings = SidecarSettings(tls_certificate=own.certificate, tls_key=own.key)
    servers = HttpServers(settings)
    reload = servers.modules()["certificate"]
    assert servers.fingerprint == _fingerprint(own.certificate)

    own.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(TlsFilesError, match="belong together"):
        await reload()
    own.key.write_bytes(other.key.read_bytes())
    await reload()
    assert servers.fingerprint == _fingerprint(other.certificate)


def _fingerprint(file: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read_text())).hexdigest()
