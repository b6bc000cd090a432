"""Users of gateways: the verifier is computed here, and a password is in no argument, no output and no file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesh.connection_security import Mechanism
from mesh.user_files import read_users
from meshctl.cli import cli

PASSWORD = "correct horse battery staple"


def run(*arguments: str, given: str | None = None, **variables: str) -> Result:
    return CliRunner().invoke(cli, ["users", *arguments], input=given, env=variables)


def test_a_user_is_set_listed_and_deleted(tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    done = run("set", "shop", "--file", str(file), given=f"{PASSWORD}\n{PASSWORD}\n")
    assert done.exit_code == 0, done.output
    secret = read_users(file).decoy_secret
    done = run("set", "bob", "--file", str(file), "--mechanism", "SCRAM-SHA-512", MESHCTL_PASSWORD=PASSWORD)
    assert done.exit_code == 0, done.output
    known = read_users(file)
    for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512):
        verifier = known.find("shop", mechanism)
        assert verifier is not None
        assert verifier.is_of(PASSWORD)
    assert known.find("bob", Mechanism.SCRAM_SHA_256) is None
    assert known.decoy_secret == secret, "unknown users keep their salts"
    assert PASSWORD not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = json.loads(run("list", "--file", str(file), "-o", "json").output)
    assert listed["users"]["bob"] == {"SCRAM-SHA-512": {"iterations": 4096}}
    assert run("delete", "shop", "--file", str(file)).exit_code == 0
    assert list(read_users(file).by_name) == ["bob"]
    assert run("delete", "shop", "--file", str(file)).exit_code == 4


def test_a_password_comes_from_a_file_without_its_newline(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    file = tmp_path / "users.yaml"
    done = run(
        "set", "shop", "--file", str(file), "--iterations", "8192", "--password-file", str(tmp_path / "password")
    )
    verifier = read_users(file).find("shop", Mechanism.SCRAM_SHA_512)
    assert verifier is not None
    assert (verifier.iterations, verifier.is_of(PASSWORD)) == (8192, True)
    assert PASSWORD not in done.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("users: [alice]", "must have the names of users"),
        ("{", "is not YAML"),
        ("other: 1", "expected `users` and `decoy_secret`"),
        ("users: {}", "`decoy_secret` must be 32 random bytes"),
    ],
)
def test_a_damaged_file_is_not_written_over(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(content)
    done = run("set", "shop", "--file", str(file), MESHCTL_PASSWORD=PASSWORD)
    assert done.exit_code == 2
    assert said in done.output
    assert file.read_text() == content


@pytest.mark.parametrize(("name", "iterations"), [("", "4096"), ("u" * 256, "4096"), ("u", "4095"), ("u", "16385")])
def test_users_that_no_gateway_would_take(name: str, iterations: str, tmp_path: Path) -> None:
    place = str(tmp_path / "users.yaml")
    done = run("set", name, "--file", place, "--iterations", iterations, MESHCTL_PASSWORD=PASSWORD)
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())
