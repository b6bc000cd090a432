"""A small certificate authority for the mesh on one machine, and a folder with a certificate for each owner.

1. The authority's key stays in the folder `authority`, which no service gets. Only its user can read the folders.
2. A certificate is signed again if a third of its time is left, if its names have changed, or if the authority has.
   The key of the owner stays, so one file changes, at once.
3. An authority that ends before a new certificate would is replaced. Owners trust the old authority until its end: a
   certificate of the old authority is good until it is replaced too.
4. An authority whose key is lost or does not fit is replaced, and nobody trusts the old authority any more.
"""

from __future__ import annotations

import fcntl
import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local.owners import SERVERS, Owner
from mesh.whole_files import replace_file

LIFE = timedelta(days=365)
"""Time of a certificate."""
RENEWED_WITHIN = LIFE / 3
"""A certificate is signed again when this time is left."""
AUTHORITY_LIFE = timedelta(days=3650)
BACKDATED = timedelta(hours=1)
"""A certificate is valid at once for neighbours whose clocks are late."""
AUTHORITY = "authority"
CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
CLOSED_FOLDER = 0o700


@dataclass(frozen=True, slots=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    certificates: tuple[x509.Certificate, ...]
    """The certificate of `key`, and those of earlier authorities that are still trusted."""

    @property
    def pem(self) -> bytes:
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in self.certificates)


def write_certificates(folder: Path, owners: Sequence[Owner], now: datetime | None = None) -> list[Owner]:
    """Bring the folder of each owner up to date; the owners whose certificate is new. OSError.

    Folders of others stay as they are.
    """
    moment = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True, mode=CLOSED_FOLDER)
    with _alone(folder / AUTHORITY):
        authority = _authority(folder / AUTHORITY, moment)
        for owner in owners:  # before any certificate of a new authority is in use
            (folder / owner.folder).mkdir(exist_ok=True, mode=CLOSED_FOLDER)
            _write(folder / owner.folder / CA, authority.pem)
        return [owner for owner in owners if _brought_up_to_date(folder / owner.folder, owner, authority, moment)]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else signs meanwhile, which takes milliseconds."""
    folder.mkdir(exist_ok=True, mode=CLOSED_FOLDER)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _authority(folder: Path, now: datetime) -> _Authority:
    key, certificates = _key(folder / "ca.key"), _certificates(folder / CA)
    trusted = tuple(each for each in certificates if each.not_valid_after_utc > now)
    fits = key is not None and trusted and trusted[0].public_key() == key.public_key()
    if key is not None and fits and _lasts(trusted[0], now, LIFE):
        return _Authority(key, trusted)
    new = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Kafka Mesh on this machine, {now:%Y-%m-%d %H:%M:%S}")])
    certificate = (
        _builder(name, new.public_key(), now, AUTHORITY_LIFE)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(new, hashes.SHA256())
    )
    made = _Authority(new, (certificate, *(trusted if fits else ())))
    # If the process ends between these two files, they do not fit: the next call makes a new authority.
    _write(folder / "ca.key", _pem(new))
    _write(folder / CA, made.pem)
    return made


def _brought_up_to_date(folder: Path, owner: Owner, authority: _Authority, now: datetime) -> bool:
    """Whether the certificate is new."""
    key = _key(folder / KEY)
    if key is not None and _is_good(_certificates(folder / CERTIFICATE), key, owner, authority, now):
        return False
    if key is None:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / KEY, _pem(key))
    certificate = _signed(owner, key.public_key(), authority, now)
    _write(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
    return True


def _is_good(
    found: Sequence[x509.Certificate],
    key: ec.EllipticCurvePrivateKey,
    owner: Owner,
    authority: _Authority,
    now: datetime,
) -> bool:
    if len(found) != 1 or found[0].public_key() != key.public_key():
        return False
    [certificate] = found
    try:
        certificate.verify_directly_issued_by(authority.certificates[0])
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return names == _names(owner) and _lasts(certificate, now, RENEWED_WITHIN)


def _lasts(certificate: x509.Certificate, now: datetime, time: timedelta) -> bool:
    return certificate.not_valid_before_utc <= now and certificate.not_valid_after_utc - now > time


def _signed(owner: Owner, key: ec.EllipticCurvePublicKey, authority: _Authority, now: datetime) -> x509.Certificate:
    issuer = authority.certificates[0]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if owner.role in SERVERS:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, owner.name)]), key, now, LIFE)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_names(owner), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    """The parts that all certificates have."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """The uses of an authority's key, or of an owner's (RFC 5280, 4.2.1.3)."""
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names(owner: Owner) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(owner.uri), *map(_host, owner.hosts)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    """None if there is no key that can be used."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _certificates(path: Path) -> list[x509.Certificate]:
    """Empty if there is none that can be read."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return []


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    no_password = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)


def _write(path: Path, content: bytes) -> None:
    """Only the user of the authority can read the file, which stays untouched if it has the content."""
    if not path.is_file() or path.read_bytes() != content:
        replace_file(path, content)
