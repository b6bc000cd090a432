"""Tenants through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_tenants(meshctl: Meshctl) -> None:
    assert "There is no tenant" in meshctl("tenants", "list").stdout
    shop = ["shop", "--member", "User:shop", "--member", "Group:sellers", "--shared-topic", "currencies"]
    text = "shop: prefix 'shop.', members Group:sellers and User:shop, reads currencies"
    made = meshctl("tenants", "set", *shop, "--reason", "a new team").stdout
    assert text in made
    assert "1 tenant changed (revision " in made
    revision = made.rpartition("(revision ")[2].strip(" )\n")
    assert "0 tenants changed" in meshctl("tenants", "set", *shop).stdout
    meshctl("tenants", "set", "bank", "--prefix", "bank_", "--member", "User:bank")
    assert meshctl("tenants", "list").stdout.splitlines() == ["bank: prefix 'bank_', members User:bank", text]
    assert meshctl("tenants", "list", "--at", revision).stdout.splitlines() == [text]
    told = json.loads(meshctl("tenants", "list", "-o", "json").stdout)
    assert [each["tenant_id"] for each in told["tenants"]] == ["bank", "shop"]

    explained = meshctl("tenants", "explain", "User:ann", "--group", "Group:sellers", "--topic", "orders").stdout
    assert explained.splitlines() == [
        "User:ann belongs to tenant shop, by its member Group:sellers",
        text,
        "orders is topic shop.orders",
    ]
    shared = meshctl("tenants", "explain", "User:shop", "--topic", "currencies").stdout
    assert "currencies is the shared topic currencies" in shared
    assert "User:ann has no tenant" in meshctl("tenants", "explain", "User:ann").stdout

    kept = meshctl("tenants", "set", "bank", "--member", "User:teller").stdout
    assert "bank: prefix 'bank_', members User:teller" in kept, "a tenant keeps its prefix"
    overlapping = meshctl("tenants", "set", "eu", "--prefix", "shop.eu.", check=False)
    assert (overlapping.returncode != 0, "begins with prefix 'shop.'" in overlapping.stderr) == (True, True)
    taken = meshctl("tenants", "set", "eu", "--member", "User:shop", check=False)
    assert (taken.returncode != 0, "is a member of tenant 'shop'" in taken.stderr) == (True, True)
    wrong = meshctl("tenants", "set", "Shop", check=False)
    assert (wrong.returncode, "is no id" in wrong.stderr) == (2, True)
    nobody = meshctl("tenants", "explain", "ann", check=False)
    assert (nobody.returncode, "is no user" in nobody.stderr) == (2, True)

    assert "bank is removed" in meshctl("tenants", "remove", "bank").stdout
    assert "0 tenants changed" in meshctl("tenants", "remove", "bank").stdout
    history = meshctl("history", "--tenants").stdout
    assert f"tenant {text}" in history
    assert "a new team" in history
    meshctl("tenants", "remove", "shop")


def test_a_file_brings_tenants_and_an_export_has_them(meshctl: Meshctl, tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("tenants: [{tenant: shop, members: [User:shop]}, {tenant: bank, prefix: bank_}]\n")
    assert "2 to add" in meshctl("apply", "-f", str(file), "--dry-run").stdout
    assert "There is no tenant" in meshctl("tenants", "list").stdout
    assert "the mesh is as the file says" in meshctl("apply", "-f", str(file)).stdout
    assert "nothing to change" in meshctl("apply", "-f", str(file)).stdout
    exported = json.loads(meshctl("export", "-o", "json").stdout)["tenants"]
    assert exported == [
        {"tenant": "bank", "prefix": "bank_"},
        {"tenant": "shop", "prefix": "shop.", "members": ["User:shop"]},
    ]
    file.write_text("tenants: [{tenant: bank, members: [User:shop]}]\n")
    pruned = meshctl("apply", "-f", str(file), "--prune").stdout
    assert "1 to change, 1 to remove" in pruned, "a member moves in one call"
    assert meshctl("tenants", "list").stdout.splitlines() == ["bank: prefix 'bank_', members User:shop"]
    file.write_text("tenants: [{tenant: eu, prefix: bank_eu.}]\n")
    refused = meshctl("apply", "-f", str(file), "--dry-run", check=False)
    assert (refused.returncode != 0, "begins with prefix 'bank_'" in refused.stderr) == (True, True)
    file.write_text("tenants: []\n")
    meshctl("apply", "-f", str(file), "--prune")
