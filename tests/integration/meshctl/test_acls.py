"""ACLs through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_a_policy(meshctl: Meshctl) -> None:
    assert meshctl("acl", "mode").stdout == "mode off; super users: none (revision 0)\n"
    assert "There is no such ACL" in meshctl("acl", "list").stdout
    locked = meshctl("acl", "mode", "enforce", check=False)
    assert (locked.returncode, "would refuse every client" in locked.stderr) == (1, True)
    assert "give --force" in locked.stderr

    named = ["--allow-principal", "User:alice", "--operation", "Read", "--topic", "shop-", "--pattern", "prefixed"]
    added = meshctl("acl", "add", *named, "--host", "10.0.0.1", "--reason", "a new shop").stdout
    assert "+ allows User:alice from host 10.0.0.1 to read prefixed topic 'shop-'" in added
    assert "1 ACL added (revision " in added
    again = meshctl("acl", "add", *named, "--host", "10.0.0.1", "--host", "10.0.0.2").stdout
    assert "1 ACL added" in again
    assert "; 1 ACL was there before" in again
    everyone = ["--deny-principal", "User:*", "--topic", "*", "--operation", "Delete", "--operation", "alter-configs"]
    assert "2 ACLs added" in meshctl("acl", "add", *everyone).stdout
    meshctl("acl", "mode", "enforce", "--super-user", "User:root")
    assert meshctl("acl", "mode").stdout.startswith("mode enforce; super users: User:root (revision ")

    listed = json.loads(meshctl("acl", "list", "--topic", "shop-orders", "--pattern", "match", "-o", "json").stdout)
    assert (listed["mode"], listed["super_users"]) == ("enforce", ["User:root"])
    assert sorted(each["operation"] for each in listed["acls"]) == [
        "ACL_OPERATION_ALTER_CONFIGS",
        "ACL_OPERATION_DELETE",
        "ACL_OPERATION_READ",
        "ACL_OPERATION_READ",
    ]
    table = meshctl("acl", "list", "--allow-principal", "User:alice").stdout
    assert [line.split() for line in table.splitlines()[1:2]] == [
        ["topic", "shop-", "prefixed", "User:alice", "10.0.0.1", "Read", "allow"]
    ]

    allowed = meshctl("acl", "explain", "User:alice", "Read", "topic:shop-orders", "--host", "10.0.0.1").stdout
    assert "User:alice may read topic 'shop-orders', because an ACL allows User:alice" in allowed
    refused = meshctl("acl", "explain", "User:alice", "delete", "topic:shop-orders").stdout
    assert "because an ACL denies User:* from host * to delete literal topic '*'" in refused
    assert "the client hears: TOPIC_AUTHORIZATION_FAILED" in refused
    assert "because no ACL allows it" in meshctl("acl", "explain", "User:alice", "Create", "cluster").stdout
    assert "User:root is a super user" in meshctl("acl", "explain", "User:root", "Read", "group:any").stdout

    kept = meshctl("acl", "remove", "--allow-principal", "User:alice", check=False)
    assert kept.returncode == 1, "nobody answers the question"
    removed = meshctl("acl", "remove", "--allow-principal", "User:alice", "--yes").stdout
    assert "2 ACLs removed" in removed
    assert "0 ACLs removed" in meshctl("acl", "remove", "--allow-principal", "User:alice", "--yes").stdout
    told = meshctl("history", "--acls").stdout
    assert "ACL added: allows User:alice from host 10.0.0.1" in told
    assert "a new shop" in told
    meshctl("acl", "mode", "off", "--no-super-users")
    meshctl("acl", "remove", "--deny-principal", "User:*", "--yes")
    assert meshctl("acl", "mode").stdout.startswith("mode off; super users: none")
