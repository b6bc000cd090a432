"""Signatures: which member of the mesh has written an event or a snapshot. No I/O.

Theory of operation
1. A member signs with the key of its own certificate (`RPC_TLS_FOLDER`): control signs events, a router its snapshots.
   A reader trusts a signature if the certificate leads to the reader's authorities, and names the role of the writer.
2. The signature is the last field of a message. It covers a word for the kind of message, and all bytes before the
   field. An event holds the hash of the event before, so a signed event vouches for the whole log up to it.
3. A signature names its certificate by a hash. The certificate itself stands in a signature if the one before was made
   with another certificate, and in each `SHOWN_EVERY`th event.
4. The dates of a certificate do not count: an event stays, and its certificate ends. So a stolen key of control signs
   until readers trust another authority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from mesh.rpc import events
from mesh.rpc.roles import SPIFFE_ID

SHOWN_EVERY: Final = 100
"""Events from one that shows its certificate to the next: a reader that begins amid the log meets it soon."""
MOST_CERTIFICATES: Final = 8
"""Certificates of one signature: the signer's, and the authorities between it and those that readers trust."""
ID_BYTES: Final = 16
CONTROL, ROUTER = "control", "router"
"""Roles that sign, as certificates name them."""

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
Authorities = Callable[[], Sequence[x509.Certificate]]
"""Those that a reader trusts now: they may change while it reads."""

_PADDING: Final = padding.PKCS1v15()
_HASH: Final = hashes.SHA256()


class UnsignedError(ValueError):
    """The bytes are not those that a member of the right role has signed; the message is the reason."""


class SigningKeyError(ValueError):
    """A key or certificate can't sign, and why."""


class Signs(Protocol):
    """Signs with the present key of a member."""

    @property
    def key_id(self) -> bytes:
        """The certificate, as signatures name it."""

    def signature(self, word: str, body: bytes, *, shows: bool) -> events.Signature:
        """The signature of these bytes; `shows`: with the certificate."""


class Signer:
    """One key and its certificates, each of which was issued by the next."""

    def __init__(self, key: PrivateKey, certificates: Sequence[x509.Certificate]) -> None:
        self._key = key
        self.subject = certificates[0].subject.rfc4514_string()
        self._certificates = [each.public_bytes(serialization.Encoding.DER) for each in certificates]
        self.key_id = _id_of(self._certificates[0])

    @classmethod
    def of_pem(cls, key: bytes, certificates: bytes) -> Signer:
        """SigningKeyError if these files can't sign."""
        loaded = serialization.load_pem_private_key(key, None)
        if not isinstance(loaded, PrivateKey):
            raise SigningKeyError(f"a key of {type(loaded).__name__} can't sign: take one of ECDSA, Ed25519 or RSA")
        found = x509.load_pem_x509_certificates(certificates)
        if len(found) > MOST_CERTIFICATES:
            raise SigningKeyError(f"{len(found)} certificates are more than {MOST_CERTIFICATES}")
        return cls(loaded, found)

    def signature(self, word: str, body: bytes, *, shows: bool) -> events.Signature:
        covered = _covered(word, body)
        match self._key:
            case ec.EllipticCurvePrivateKey():
                value = self._key.sign(covered, ec.ECDSA(_HASH))
            case ed25519.Ed25519PrivateKey():
                value = self._key.sign(covered)
            case rsa.RSAPrivateKey():
                value = self._key.sign(covered, _PADDING, _HASH)
        return events.Signature(key_id=self.key_id, value=value, certificates=self._certificates if shows else [])


def signed_event(event: events.Event, signer: Signs | None, last_key_id: bytes) -> bytes:
    """The bytes of this event for the log; `event` gets the signature. `last_key_id`: of the event before."""
    body = event.SerializeToString(deterministic=True)
    if signer is None:
        return body
    shows = signer.key_id != last_key_id or event.position % SHOWN_EVERY == 0
    event.signature.CopyFrom(signer.signature("event", body, shows=shows))
    return body + _field(event.signature)


class Signatures:
    """Checks the signatures of one reading, and keeps the certificates that the reading has shown.

    `role`: of the members whose signatures count.
    """

    def __init__(self, authorities: Authorities, role: str, shown: Iterable[Sequence[bytes]] = ()) -> None:
        self._authorities = authorities
        self._role = role
        self._shown = {_id_of(each[0]): tuple(each) for each in shown if each}
        self._trusted: dict[bytes, x509.Certificate] = {}
        self._trusted_by: Sequence[x509.Certificate] = ()

    @property
    def shown(self) -> list[tuple[bytes, ...]]:
        """The certificates of each signature that was trusted, in DER, for the next reading."""
        return [self._shown[key_id] for key_id in self._trusted]

    @property
    def have_begun(self) -> bool:
        """Whether this reading, or the reading before, has met a signature that is trusted."""
        return bool(self._shown)

    def check_event(self, event: events.Event, body: bytes) -> None:
        """UnsignedError if nobody with the role has signed the event that has this body."""
        if not event.HasField("signature"):
            raise UnsignedError("it has no signature")
        field = _field(event.signature)
        if not body.endswith(field):
            raise UnsignedError("its signature is not its last field")
        self.check("event", body[: -len(field)], event.signature)

    def check(self, word: str, body: bytes, signature: events.Signature) -> None:
        """UnsignedError if this is not the signature of these bytes by somebody with the role."""
        key = self._certificate_of(signature).public_key()
        covered = _covered(word, body)
        try:
            match key:
                case ec.EllipticCurvePublicKey():
                    key.verify(signature.value, covered, ec.ECDSA(_HASH))
                case ed25519.Ed25519PublicKey():
                    key.verify(signature.value, covered)
                case rsa.RSAPublicKey():
                    key.verify(signature.value, covered, _PADDING, _HASH)
                case _:
                    raise UnsignedError(f"its certificate has a key of {type(key).__name__}")
        except InvalidSignature:
            raise UnsignedError("its bytes are not those that were signed") from None
        self._shown.setdefault(signature.key_id, tuple(signature.certificates))

    def _certificate_of(self, signature: events.Signature) -> x509.Certificate:
        authorities = self._authorities()
        if authorities is not self._trusted_by:
            self._trusted, self._trusted_by = {}, authorities
        found = self._trusted.get(signature.key_id)
        if found is None:
            chain = self._shown.get(signature.key_id) or tuple(signature.certificates)
            if not chain:
                raise UnsignedError(f"no event before it shows its certificate {signature.key_id.hex()}")
            if _id_of(chain[0]) != signature.key_id or len(chain) > MOST_CERTIFICATES:
                raise UnsignedError("it shows a certificate that is not its own")
            found = self._trusted[signature.key_id] = _trusted(chain, authorities, self._role)
        return found


def certificate_role(certificate: x509.Certificate) -> str:
    """The role in the certificate's name, `spiffe://MESH/ROLE/NAME`; empty if it has no such name."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ""
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        if found := SPIFFE_ID.fullmatch(uri):
            return found["role"]
    return ""


def _trusted(shown: Sequence[bytes], authorities: Sequence[x509.Certificate], role: str) -> x509.Certificate:
    """The signer's certificate; UnsignedError if it does not lead to the authorities, or is of another role."""
    try:
        chain = [x509.load_der_x509_certificate(each) for each in shown]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnsignedError(f"its certificate can't be read: {error}") from None
    first = chain[0]
    if certificate_role(first) != role:
        raise UnsignedError(
            f"its certificate, {first.subject.rfc4514_string()}, is not of {role}: expected the URI "
            f"spiffe://MESH/{role}/NAME in it"
        )
    for certificate, issuer in zip(chain, [*chain[1:], None], strict=True):
        if any(_is_issued_by(certificate, each) for each in authorities):
            return first
        if issuer is None or not _is_authority(issuer) or not _is_issued_by(certificate, issuer):
            break
    subject = first.subject.rfc4514_string()
    raise UnsignedError(f"no authority that is trusted here has issued its certificate {subject}")


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _id_of(certificate: bytes) -> bytes:
    return sha256(certificate).digest()[:ID_BYTES]


def _covered(word: str, body: bytes) -> bytes:
    return b"kafka-mesh " + word.encode() + b"\0" + body


def _field(signature: events.Signature) -> bytes:
    """The signature as the field of an event."""
    return events.Event(signature=signature).SerializeToString()
