"""A certificate that the sidecar makes for itself if none is configured: it encrypts, but proves no identity.

The certificate is kept beside the sidecar's other state, so that a client that trusts the certificate may go on doing
so. The sidecar makes a new certificate when the old one is about to expire.
"""

import datetime
import ipaddress
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mesh.server_certificate import TlsFiles
from mesh.whole_files import replace_file

LIFE = datetime.timedelta(days=397)
"""The longest life that browsers accept."""
RENEW_BEFORE = datetime.timedelta(days=30)
CERTIFICATE, KEY = "listener-certificate.pem", "listener-key.pem"


def own_certificate(folder: Path) -> TlsFiles:
    """The files; they are made if they are missing or about to expire. OSError when they can't be made."""
    files = TlsFiles(folder / CERTIFICATE, folder / KEY)
    if not _lasts(files):
        _make(files)
    return files


def _lasts(files: TlsFiles) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return False
    remaining = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return remaining > RENEW_BEFORE and certificate.public_key() == key.public_key()


def _make(files: TlsFiles) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka-mesh-sidecar")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # a client's clock may be behind
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName(_names()), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)  # so that clients can trust it
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    replace_file(
        files.key,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    replace_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _names() -> list[x509.GeneralName]:
    hosts = {"localhost", socket.gethostname()}
    return [
        *(x509.DNSName(host) for host in sorted(hosts) if host.isascii() and host),
        x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")),
        x509.IPAddress(ipaddress.IPv6Address("::1")),
    ]
