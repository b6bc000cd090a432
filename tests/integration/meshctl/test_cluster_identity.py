"""Clients' identities at a cluster through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_an_identity(meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch) -> None:
    sasl = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=mesh"]
    options = [
        part for each in [*sasl, "sasl.password=${env:KAFKA_MESH_SECRET_X}"] for part in ("--producer-config", each)
    ]
    meshctl("cluster", "register", "x1", "127.0.0.1:1", *options, "--allow-unreachable")
    assert "all clients reach cluster x1 as the mesh" in meshctl("cluster", "identity", "show", "x1").stdout
    credential = ["sasl.username=alice", "sasl.password=${env:KAFKA_MESH_SECRET_ALICE}"]
    checked = meshctl("cluster", "identity", "map", "x1", "User:alice", *credential, "--dry-run").stdout
    assert "nothing was changed" in checked
    made = meshctl("cluster", "identity", "map", "x1", "User:alice", *credential, "--reason", "herself").stdout
    assert "others are refused" in made
    assert "User:alice  sasl.password=${env:KAFKA_MESH_SECRET_ALICE} sasl.username=alice" in made
    revision = made.split()[-1]
    meshctl("cluster", "identity", "map", "x1", "User:team-*", *credential)
    assert (
        "others reach it as the mesh"
        in meshctl("cluster", "identity", "set", "x1", "mapped", "--others", "mesh").stdout
    )
    assert "nothing to change" in meshctl("cluster", "identity", "set", "x1", "mapped").stdout
    shown = json.loads(meshctl("cluster", "identity", "show", "x1", "-o", "json").stdout)
    assert [each.get("principal", each.get("principal_prefix")) for each in shown["credentials"]] == [
        "User:alice",
        "User:team-",
    ]
    assert "User:alice" not in meshctl("cluster", "identity", "unmap", "x1", "User:alice").stdout
    missing = meshctl("cluster", "identity", "unmap", "x1", "User:alice", check=False)
    assert (missing.returncode, "has no credential" in missing.stderr) == (4, True)
    assert "by their own tokens" in meshctl("cluster", "identity", "set", "x1", "passthrough").stdout
    assert "all clients reach" in meshctl("cluster", "identity", "clear", "x1").stdout
    back = meshctl("cluster", "identity", "revert", "x1", revision).stdout
    assert "User:alice" in back
    assert "User:team-*" not in back
    wrong = meshctl("cluster", "identity", "map", "x1", "User:bob", "sasl.password=wrong-horse", check=False)
    assert (wrong.returncode, "wrong-horse" in wrong.stderr) == (2, False)
    history = meshctl("history", "--cluster", "x1").stdout
    assert "credential of User:team-* set" in history
