"""ACLs through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.fixtures.traffic_tables import TrafficTables

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


def test_a_dry_run_says_who_would_have_been_refused(meshctl: Meshctl, control_database: str) -> None:
    tables = TrafficTables(control_database)
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    days: Counter[tuple[datetime, str, str, str, str]] = Counter()
    for hours, client, principal, topic, api, calls in (
        (5, "app", "User:alice", "orders", "Fetch", 10),
        (5, "app", "User:alice", "orders", "Produce", 4),
        (3, "app", "User:alice", "orders", "Fetch", 10),
        (3, "app", "User:alice", "orders", "Produce", 4),
        (2, "old", "", "orders", "Fetch", 2),
        (2, "old", "", "", "Metadata", 6),
    ):
        at = this_hour - timedelta(hours=hours)
        tables.add("hour", at, client=client, principal=principal, topic=topic, api=api, calls=calls)
        days[at.replace(hour=0), client, principal, topic, api] += calls
    for (day, client, principal, topic, api), calls in days.items():  # as the pipeline adds them up
        tables.add("day", day, client=client, principal=principal, topic=topic, api=api, calls=calls)
    tables.tell(complete_until=datetime.now(UTC))
    reads = ["--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders"]
    before = meshctl("acl", "mode").stdout

    enforced = meshctl("acl", "mode", "enforce", "--dry-run").stdout.splitlines()
    rows = sorted(line.split()[:5] for line in enforced[1:4])
    assert rows == [
        ["User:ANONYMOUS", "old", "read", "orders", "2"],
        ["User:alice", "app", "read", "orders", "20"],
        ["User:alice", "app", "write", "orders", "8"],
    ]
    assert any("30 calls since" in line for line in enforced)
    assert "note: Calls that were not judged, by API: Metadata 6." in enforced
    assert "no ACL allows it" in enforced[1]
    assert "None would be refused what it does." in enforced, "no client is connected"

    meshctl("acl", "add", *reads)
    told = json.loads(meshctl("acl", "mode", "enforce", "--dry-run", "-o", "json").stdout)["dry_run"]
    assert {(each["principal"], each["operation"]) for each in told["refused"]} == {
        ("User:alice", "write"),
        ("User:ANONYMOUS", "read"),
    }
    (written,) = (each for each in told["refused"] if each["operation"] == "write")
    hour = this_hour - timedelta(hours=3)
    assert written["last_time"].startswith(f"{hour:%Y-%m-%d %H:%M}") or f"{hour:%H:%M}" in written["last_time"]

    lost = meshctl("acl", "remove", "--allow-principal", "User:alice", "--dry-run").stdout
    assert lost.splitlines()[1].split()[:5] == ["User:alice", "app", "read", "orders", "20"]
    assert "the policy as it is would refuse 2 more" in lost
    denied = meshctl("acl", "add", "--deny-principal", "User:*", "--topic", "orders", "--dry-run").stdout
    assert "an ACL denies User:* from host * to all literal topic 'orders'" in denied
    fine = meshctl("acl", "add", "--allow-principal", "User:bob", "--topic", "orders", "--dry-run").stdout
    assert "No client would have lost a right" in fine
    assert "1 ACL removed" in meshctl("acl", "remove", "--allow-principal", "User:alice", "--yes").stdout
    assert meshctl("acl", "mode").stdout.partition(" (")[0] == before.partition(" (")[0]


def test_a_file_carries_the_policy(meshctl: Meshctl, tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(
        "acls:\n- {principal: User:shop, operations: [Read, Write], topic_prefix: shop-}\n"
        "acl_policy: {mode: enforce, super_users: [User:root]}\n",
        encoding="utf-8",
    )
    checked = meshctl("apply", "-f", str(file), "--dry-run").stdout
    assert "Plan: 2 to add, 1 to change, 0 to remove." in checked
    assert "checked only, nothing was changed" in checked
    assert meshctl("acl", "mode").stdout.startswith("mode off")
    assert "the mesh is as the file says" in meshctl("apply", "-f", str(file)).stdout
    assert "nothing to change" in meshctl("apply", "-f", str(file), "--prune").stdout
    assert meshctl("acl", "mode").stdout.startswith("mode enforce; super users: User:root")
    meshctl("acl", "add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "shop-1")
    assert "- acl User:bob" in meshctl("diff", "-f", str(file), "--prune").stdout
    since = json.loads(meshctl("acl", "mode", "-o", "json").stdout)["revision"]
    meshctl("acl", "mode", "observe", "--no-super-users")
    meshctl("acl", "remove", "--allow-principal", "User:bob", "--yes")
    differs = meshctl("diff", str(since)).stdout
    assert "~ acl policy    mode observe; super users none (was mode enforce; super users User:root)" in differs
    assert "- acl User:bob  allows User:bob from host * to read literal topic 'shop-1'" in differs
    told = json.loads(meshctl("diff", str(since), "-o", "json").stdout)
    assert ([each["principal"] for each in told["acls"]["removed"]], told["acls"]["added"]) == (["User:bob"], [])
    meshctl("acl", "mode", "enforce", "--super-user", "User:root")
    exported = tmp_path / "exported.yaml"
    exported.write_text(meshctl("export").stdout, encoding="utf-8")
    assert "nothing to change" in meshctl("apply", "-f", str(exported), "--prune").stdout
    wrong = "acls: [{principal: shop, operations: [Read], topic: a}]\nacl_policy: {mode: 'off'}\n"
    file.write_text(wrong, encoding="utf-8")
    refused = meshctl("apply", "-f", str(file), check=False)
    assert "is no principal" in refused.stderr
    assert meshctl("acl", "mode").stdout.startswith("mode enforce"), "nothing was changed"
    file.write_text("acls: []\nacl_policy: {super_users: []}\n", encoding="utf-8")
    locked = meshctl("apply", "-f", str(file), "--prune", check=False)
    assert "mode enforce would refuse every client" in locked.stderr
    file.write_text("acls: []\nacl_policy: {mode: 'off', super_users: []}\n", encoding="utf-8")
    meshctl("apply", "-f", str(file), "--prune")
    assert "There is no such ACL" in meshctl("acl", "list").stdout
