"""The authority on one machine, and who gets which certificate, with the files as they are on disk."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from local.certificates import AUTHORITY_LIFE, LIFE, RENEWED_WITHIN, write_certificates
from local.owners import ROLES, Owner, OwnerError, joined, owner_name, parse_owner
from mesh.rpc.roles import ROLES as ROLES_OF_CALLERS
from mesh.rpc.roles import SPIFFE_ID
from mesh.rpc.tls import RpcTls, RpcTlsError

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
DAY = timedelta(days=1)
CONTROL = Owner("control", "control", "control-1", ("127.0.0.1", "localhost"))
SHOP = Owner("sidecar", "sidecar", "shop")
ADA = Owner("admin", "admin", "ada")
ALL = (CONTROL, SHOP, ADA)


def signed(folder: Path, moment: datetime = NOW, owners: tuple[Owner, ...] = ALL) -> list[Owner]:
    return write_certificates(folder, owners, moment)


def certificate(folder: Path, owner: Owner) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / owner.folder / "tls.crt").read_bytes())


def authorities(folder: Path, owner: Owner) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates((folder / owner.folder / "ca.crt").read_bytes())


def names(found: x509.Certificate) -> set[str]:
    extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(each.value) for each in extension.value}


def purposes(found: x509.Certificate) -> set[str]:
    return {each._name for each in found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value}


def test_each_owner_gets_a_folder_that_services_can_use(tmp_path: Path) -> None:
    assert signed(tmp_path) == list(ALL)
    for owner in ALL:
        RpcTls(tmp_path / owner.folder).check()
        [authority] = authorities(tmp_path, owner)
        certificate(tmp_path, owner).verify_directly_issued_by(authority)
    assert names(certificate(tmp_path, CONTROL)) == {"127.0.0.1", "localhost", "spiffe://kafka-mesh/control/control-1"}
    assert names(certificate(tmp_path, SHOP)) == {"spiffe://kafka-mesh/sidecar/shop"}


def test_only_a_server_can_serve_and_nobody_but_the_authority_signs(tmp_path: Path) -> None:
    signed(tmp_path)
    assert purposes(certificate(tmp_path, CONTROL)) == {"clientAuth", "serverAuth"}
    assert purposes(certificate(tmp_path, SHOP)) == purposes(certificate(tmp_path, ADA)) == {"clientAuth"}
    for owner in ALL:
        extensions = certificate(tmp_path, owner).extensions
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_only_the_user_can_read_the_folders_and_no_service_has_the_key_of_the_authority(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        signed(tmp_path / "certificates")
    finally:
        os.umask(before)
    folders = [tmp_path / "certificates", *(path for path in (tmp_path / "certificates").iterdir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    files = [path for path in (tmp_path / "certificates").rglob("*") if path.suffix in (".key", ".crt")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert [path.parent.name for path in files if path.name == "ca.key"] == ["authority"]
    keys = [path.read_bytes() for path in files if path.suffix == ".key"]
    assert len(set(keys)) == len(keys) == 1 + len(ALL)


def test_good_certificates_stay_as_they_are(tmp_path: Path) -> None:
    signed(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert signed(tmp_path, NOW + LIFE - RENEWED_WITHIN - DAY) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before


def test_a_certificate_is_renewed_before_it_ends_and_keeps_its_key(tmp_path: Path) -> None:
    signed(tmp_path)
    key = (tmp_path / "sidecar" / "tls.key").read_bytes()
    later = NOW + LIFE - RENEWED_WITHIN
    assert signed(tmp_path, later) == list(ALL)
    assert certificate(tmp_path, SHOP).not_valid_after_utc == later + LIFE
    assert (tmp_path / "sidecar" / "tls.key").read_bytes() == key
    RpcTls(tmp_path / "sidecar").check()


@pytest.mark.parametrize(
    "changed",
    [
        Owner("control", "control", "control-1", ("127.0.0.1", "control")),
        Owner("control", "router", "control-1", ("127.0.0.1", "localhost")),
        Owner("control", "control", "control-9", ("127.0.0.1", "localhost")),
    ],
    ids=str,
)
def test_other_names_get_another_certificate(tmp_path: Path, changed: Owner) -> None:
    signed(tmp_path)
    assert signed(tmp_path, NOW, (changed, SHOP)) == [changed]
    assert names(certificate(tmp_path, changed)) == {*changed.hosts, changed.uri}


@pytest.mark.parametrize(
    ("file", "content"),
    [("tls.crt", b""), ("tls.key", b"no key"), ("ca.crt", b"-----BEGIN CERTIFICATE-----\n"), ("tls.key", None)],
)
def test_a_file_that_is_broken_or_lost_is_mended(tmp_path: Path, file: str, content: bytes | None) -> None:
    signed(tmp_path)
    path = tmp_path / "sidecar" / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(RpcTlsError):
        RpcTls(tmp_path / "sidecar").check()
    signed(tmp_path)
    RpcTls(tmp_path / "sidecar").check()
    certificate(tmp_path, SHOP).verify_directly_issued_by(authorities(tmp_path, SHOP)[0])


def test_a_key_of_another_certificate_is_noticed(tmp_path: Path) -> None:
    """A process that ended between two files leaves such a pair."""
    signed(tmp_path)
    (tmp_path / "sidecar" / "tls.key").write_bytes((tmp_path / "admin" / "tls.key").read_bytes())
    assert signed(tmp_path) == [SHOP]
    RpcTls(tmp_path / "sidecar").check()


def test_an_old_authority_is_trusted_until_its_end(tmp_path: Path) -> None:
    """A neighbour has its new certificate a moment later."""
    signed(tmp_path)
    [first] = authorities(tmp_path, SHOP)
    end = NOW + AUTHORITY_LIFE
    signed(tmp_path, end - LIFE - DAY)
    assert authorities(tmp_path, SHOP) == [first]
    assert signed(tmp_path, end - LIFE) == list(ALL)
    second, *others = authorities(tmp_path, SHOP)
    assert others == [first] != [second]
    certificate(tmp_path, SHOP).verify_directly_issued_by(second)
    signed(tmp_path, end)
    assert authorities(tmp_path, SHOP) == [second]


@pytest.mark.parametrize("harm", ["lost", "foreign"])
def test_an_authority_without_its_key_is_not_trusted_any_more(tmp_path: Path, harm: str) -> None:
    signed(tmp_path)
    [first] = authorities(tmp_path, SHOP)
    key = tmp_path / "authority" / "ca.key"
    if harm == "lost":
        key.unlink()
    else:
        signed(tmp_path / "others")
        key.write_bytes((tmp_path / "others" / "authority" / "ca.key").read_bytes())
    assert signed(tmp_path) == list(ALL)
    [second] = authorities(tmp_path, SHOP)
    assert second != first


def test_a_clock_that_was_far_ahead_does_no_harm_for_long(tmp_path: Path) -> None:
    signed(tmp_path, NOW + 30 * DAY)
    assert signed(tmp_path, NOW) == list(ALL)
    for owner in ALL:
        assert certificate(tmp_path, owner).not_valid_before_utc <= NOW
        assert authorities(tmp_path, owner)[0].not_valid_before_utc <= NOW


def test_folders_of_others_stay(tmp_path: Path) -> None:
    signed(tmp_path)
    before = certificate(tmp_path, SHOP)
    signed(tmp_path, NOW + LIFE - DAY, (CONTROL,))
    assert certificate(tmp_path, SHOP) == before


def test_keys_are_of_a_curve_that_every_member_knows(tmp_path: Path) -> None:
    signed(tmp_path)
    key = serialization.load_pem_private_key((tmp_path / "admin" / "tls.key").read_bytes(), None)
    assert getattr(key, "curve").name == "secp256r1"  # noqa: B009  # a key of another kind has no curve


@pytest.mark.parametrize("owner", ALL, ids=str)
def test_an_owner_is_read_as_it_is_written(owner: Owner) -> None:
    assert parse_owner(str(owner)) == owner
    found = SPIFFE_ID.fullmatch(owner.uri)
    assert found and (found["role"], found["name"]) == (owner.role, owner.name)


def test_an_owner_without_a_folder_gets_one_by_role_and_name() -> None:
    assert parse_owner("viewer/vera") == Owner("viewer-vera", "viewer", "vera")
    assert joined([SHOP, ADA]) == "sidecar=sidecar/shop admin=admin/ada"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shop", "is not"),
        ("=sidecar/shop", "is not"),
        ("control/c@", "is not"),
        ("nobody/shop", "no role is called 'nobody'"),
        ("sidecar/", "letters, digits"),
        ("sidecar/" + "x" * 65, "1 to 64"),
        ("../etc=sidecar/shop", "'../etc' is not"),
        ("..=sidecar/shop", "'..' is not"),
        ("sidecar/shop@127.0.0.1", "other roles have none"),
        ("router/router-1", "need hosts"),
    ],
)
def test_a_text_that_is_no_owner_is_refused(text: str, said: str) -> None:
    with pytest.raises(OwnerError, match=said):
        parse_owner(text)


def test_roles_are_those_that_servers_know() -> None:
    assert {*ROLES} == {*ROLES_OF_CALLERS, "control"}


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("ada", "ada"),
        ("CORP\\ada l", "CORP-ada-l"),
        ("ädä", "d"),
        ("", "unknown"),
        ("..", "unknown"),
        ("x" * 99, "x" * 64),
    ],
)
def test_a_user_has_a_name_that_a_certificate_can_carry(user: str, name: str) -> None:
    assert owner_name(user) == name
    assert Owner("admin", "admin", owner_name(user)).name == name
