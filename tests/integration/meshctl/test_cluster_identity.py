"""Clients' identities at a cluster through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Meshctl = Callable[..., subprocess.CompletedProcess[str]]

FOLDER = "/etc/kafka-mesh/secrets"
CREDENTIAL = (f"ssl.certificate.location={FOLDER}/alice.pem", "ssl.key.pem=${env:KAFKA_MESH_SECRET_ALICE}")


def test_the_life_of_an_identity(meshctl: Meshctl) -> None:
    def identity(command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return meshctl("cluster", "identity", command, "x1", *arguments, check=check)

    tls = ("--producer-config", "security.protocol=SSL")
    meshctl("cluster", "register", "x1", "127.0.0.1:1", *tls, "--allow-unreachable")
    assert "all clients reach cluster x1 as the mesh" in identity("show").stdout
    assert "nothing was changed" in identity("map", "User:alice", *CREDENTIAL, "--dry-run").stdout
    made = identity("map", "User:alice", *CREDENTIAL, "--reason", "herself").stdout
    assert "others are refused" in made
    assert f"User:alice  {' '.join(CREDENTIAL)}" in made
    revision = made.split()[-1]
    identity("map", "User:team-*", *CREDENTIAL)
    assert "others reach it as the mesh" in identity("set", "mapped", "--others", "mesh").stdout
    assert "nothing to change" in identity("set", "mapped").stdout
    shown = json.loads(identity("show", "-o", "json").stdout)
    named = [each.get("principal", each.get("principal_prefix")) for each in shown["credentials"]]
    assert named == ["User:alice", "User:team-"]
    assert "User:alice" not in identity("unmap", "User:alice").stdout
    missing = identity("unmap", "User:alice", check=False)
    assert (missing.returncode, "has no credential" in missing.stderr) == (4, True)
    tokens = identity("set", "passthrough", check=False)
    assert (tokens.returncode, "takes no tokens" in tokens.stderr) == (1, True)
    assert "all clients reach" in identity("clear").stdout
    back = identity("revert", revision).stdout
    assert "User:alice" in back
    assert "User:team-*" not in back
    wrong = identity("map", "User:bob", CREDENTIAL[0], "ssl.key.pem=wrong-horse", check=False)
    assert (wrong.returncode, "wrong-horse" in wrong.stderr) == (2, False)
    assert "credential of User:team-* set" in meshctl("history", "--cluster", "x1").stdout
