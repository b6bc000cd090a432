"""Users through a real control: the password stays in this process, and the history tells who decided."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg

from mesh.rpc import users
from mesh.scram_codec import verifier_from_proto

Meshctl = Callable[..., subprocess.CompletedProcess[str]]
PASSWORD = "correct horse battery staple"


def test_a_users_life_through_control(
    meshctl: Meshctl, control_database: str, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    name, password = unique_name("shop"), tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    told = [meshctl("users", "set", name, "--password-file", str(password), "--reason", "new here")]
    assert f"user {name} logs in by SCRAM-SHA-256, SCRAM-SHA-512 (revision " in told[0].stdout
    with psycopg.connect(control_database) as connection:
        [body] = connection.execute("select body from user_verifiers where name = %s", (name,)).fetchone() or [b""]
    for each in users.ScramVerifiers.FromString(body).verifiers:
        assert verifier_from_proto(each).is_of(PASSWORD)
    listed = json.loads(meshctl("users", "list", "-o", "json").stdout)["users"]
    assert [[of["iterations"] for of in each["mechanisms"]] for each in listed if each["name"] == name] == [[4096] * 2]
    told += [
        meshctl("users", "delete", name, "--reason", "gone"),
        meshctl("users", "explain", name),
        meshctl("users", "restore", name),
        meshctl("users", "explain", name),
        meshctl("users", "list"),
        meshctl("history", "--user", name),
    ]
    assert "the user is deleted, by decision" in told[2].stdout
    assert "can log in by SCRAM-SHA-256 and SCRAM-SHA-512" in told[4].stdout
    assert [line for line in told[6].stdout.splitlines() if "logs in by" in line and "new here" in line]
    assert not [each for each in told if PASSWORD in each.stdout + each.stderr]
    missing = meshctl("users", "delete", "nobody-by-this-name", check=False)
    assert (missing.returncode, "meshctl users list" in missing.stderr) == (4, True)
