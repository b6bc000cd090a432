"""Signatures of events: who may sign, what a signature covers, and what a reader knows of certificates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from local.certificates import write_certificates
from local.owners import parse_owner
from mesh.event_log import CONTROL, Signatures, UnsignedError, signed_event
from mesh.event_log.signatures import SHOWN_EVERY, PrivateKey, Signer
from mesh.member_keys import MemberKeys
from mesh.rpc import events
from mesh.rpc.tls import RpcTls

CONTROL_1 = "control/c1@localhost"


def keys_of(folder: Path, owner: str) -> MemberKeys:
    known = parse_owner(owner)
    write_certificates(folder, [known])
    return MemberKeys(RpcTls(folder / known.folder))


@pytest.fixture
def control(tmp_path: Path) -> MemberKeys:
    return keys_of(tmp_path / "mesh", CONTROL_1)


@pytest.fixture
def signatures(tmp_path: Path, control: MemberKeys) -> Signatures:
    return keys_of(tmp_path / "mesh", "router/r1@localhost").signatures(CONTROL)


def event(position: int = 1) -> events.Event:
    return events.Event(position=position, actor="ada", topic_owner_set=events.TopicOwnerSet(topic="apples"))


def check(signatures: Signatures, body: bytes) -> None:
    signatures.check_event(events.Event.FromString(body), body)


def test_a_router_trusts_what_control_has_signed(control: MemberKeys, signatures: Signatures) -> None:
    body = signed_event(event(), control, b"")
    check(signatures, body)
    assert signatures.have_begun
    assert events.Event.FromString(body).topic_owner_set.topic == "apples"


def test_each_byte_before_the_signature_counts(control: MemberKeys, signatures: Signatures) -> None:
    body = signed_event(event(), control, b"")
    with pytest.raises(UnsignedError, match="not those that were signed"):
        check(signatures, body.replace(b"apples", b"apricy"))
    assert not signatures.have_begun


def test_fields_behind_the_signature_are_refused(control: MemberKeys, signatures: Signatures) -> None:
    body = signed_event(event(), control, b"") + events.Event(actor="mallory").SerializeToString()
    with pytest.raises(UnsignedError, match="not its last field"):
        check(signatures, body)


def test_an_event_without_a_signature_is_refused(signatures: Signatures) -> None:
    with pytest.raises(UnsignedError, match="no signature"):
        check(signatures, event().SerializeToString())


@pytest.mark.parametrize("owner", ["gateway/g1", "router/r1@localhost", "admin/ada"])
def test_nobody_but_control_signs_events(tmp_path: Path, signatures: Signatures, owner: str) -> None:
    keys = keys_of(tmp_path / "mesh", owner)
    with pytest.raises(UnsignedError, match="is not of control"):
        check(signatures, signed_event(event(), keys, b""))


def test_another_authority_counts_for_nothing(tmp_path: Path, signatures: Signatures) -> None:
    foreign = keys_of(tmp_path / "foreign", CONTROL_1)
    with pytest.raises(UnsignedError, match="no authority that is trusted here"):
        check(signatures, signed_event(event(), foreign, b""))


def test_a_signature_does_not_count_with_the_certificate_of_another(
    tmp_path: Path, control: MemberKeys, signatures: Signatures
) -> None:
    shown = signed_event(event(), control, b"")
    forged = events.Event.FromString(signed_event(event(2), keys_of(tmp_path / "foreign", CONTROL_1), b""))
    honest = events.Event.FromString(shown).signature
    del forged.signature.certificates[:]
    forged.signature.certificates.extend(honest.certificates)
    with pytest.raises(UnsignedError, match="not its own"):
        check(signatures, forged.SerializeToString())


def test_later_events_do_not_repeat_the_certificate_and_some_show_it_again(
    control: MemberKeys, signatures: Signatures
) -> None:
    first, second, later = event(1), event(2), event(SHOWN_EVERY)
    bodies = [signed_event(first, control, b"")]
    bodies += [signed_event(each, control, first.signature.key_id) for each in (second, later)]
    assert [bool(each.signature.certificates) for each in (first, second, later)] == [True, False, True]
    with pytest.raises(UnsignedError, match="no event before it shows its certificate"):
        check(signatures, bodies[1])
    check(signatures, bodies[2])
    check(signatures, bodies[1])


def test_the_next_reading_knows_the_certificates_of_the_last(
    tmp_path: Path, control: MemberKeys, signatures: Signatures
) -> None:
    first, second = event(1), event(2)
    check(signatures, signed_event(first, control, b""))
    again = keys_of(tmp_path / "mesh", "router/r1@localhost").signatures(CONTROL, signatures.shown)
    check(again, signed_event(second, control, first.signature.key_id))


def test_a_certificate_that_has_ended_still_vouches_for_its_events(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=500)
    owner = parse_owner(CONTROL_1)
    write_certificates(tmp_path, [owner], long_ago)
    tls = RpcTls(tmp_path / owner.folder)
    old = MemberKeys(tls)
    body = signed_event(event(), old, b"")
    write_certificates(tmp_path, [owner])
    assert old.key_id != events.Event.FromString(body).signature.key_id, "the certificate was not renewed"
    check(MemberKeys(tls).signatures(CONTROL), body)


def _ecdsa() -> PrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _rsa() -> PrivateKey:
    return rsa.generate_private_key(65537, 2048)


def _certificate(
    name: str, key: PrivateKey, issuer: x509.Certificate | None, by: PrivateKey, *, ca: bool
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://mesh/control/{name}")])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(by, None if isinstance(by, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )


@pytest.mark.parametrize("new_key", [_ecdsa, ed25519.Ed25519PrivateKey.generate, _rsa])
def test_any_usual_key_signs_below_an_authority_between(new_key: Callable[[], PrivateKey]) -> None:
    root_key, between_key, key = _ecdsa(), _ecdsa(), new_key()
    root = _certificate("root", root_key, None, root_key, ca=True)
    between = _certificate("between", between_key, root, root_key, ca=True)
    own = _certificate("c1", key, between, between_key, ca=False)
    signatures = Signatures(lambda: [root], CONTROL)
    check(signatures, signed_event(event(), Signer(key, [own, between]), b""))


def test_a_member_cannot_make_certificates_of_its_own() -> None:
    root_key, member_key, key = _ecdsa(), _ecdsa(), _ecdsa()
    root = _certificate("root", root_key, None, root_key, ca=True)
    member = _certificate("member", member_key, root, root_key, ca=False)
    own = _certificate("c1", key, member, member_key, ca=False)
    signatures = Signatures(lambda: [root], CONTROL)
    with pytest.raises(UnsignedError, match="no authority that is trusted here"):
        check(signatures, signed_event(event(), Signer(key, [own, member]), b""))
