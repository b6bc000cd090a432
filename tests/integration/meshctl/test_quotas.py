"""Quotas through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_quotas(meshctl: Meshctl) -> None:
    assert "There is no quota" in meshctl("quota", "list").stdout
    rates = ["--producer-byte-rate", "1048576", "--consumer-byte-rate", "2097152"]
    made = meshctl("quota", "set", "--user", "alice", *rates, "--reason", "a new shop").stdout
    assert "producer_byte_rate of user 'alice' is 1048576 bytes/s" in made
    assert "2 quotas changed (revision " in made
    assert "0 quotas changed" in meshctl("quota", "set", "--user", "alice", *rates).stdout
    meshctl("quota", "set", "--user-defaults", "--client-id", "batch", "--request-percentage", "50")
    meshctl("quota", "set", "--ip-defaults", "--connection-creation-rate", "20")

    table = meshctl("quota", "list", "--user", "alice").stdout
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["user", "'alice'", "producer_byte_rate", "1048576", "bytes/s"],
        ["user", "'alice'", "consumer_byte_rate", "2097152", "bytes/s"],
    ]
    assert len(json.loads(meshctl("quota", "list", "-o", "json").stdout)["quotas"]) == 4

    meshctl("quota", "set", "--user", "Group:reports", "--consumer-byte-rate", "10")
    assert "'Group:reports' is 10 bytes/s" in meshctl("quota", "explain", "eve", "--group", "reports").stdout
    meshctl("quota", "remove", "--user", "Group:reports")
    meshctl("quota", "set", "--user", "Prefixed:nightly-", "--consumer-byte-rate", "10")
    shared = "'Prefixed:nightly-' is 10 bytes/s, shared by all connections of user 'Prefixed:nightly-'"
    assert shared in meshctl("quota", "explain", "nightly-7").stdout
    assert "consumer_byte_rate" not in meshctl("quota", "explain", "daily-7").stdout
    meshctl("quota", "remove", "--user", "Prefixed:nightly-")
    told = meshctl("quota", "explain", "alice", "--client-id", "batch").stdout
    assert "producer_byte_rate of user 'alice' is 1048576 bytes/s, shared by all connections of user 'alice'" in told
    shared = "shared by all connections of user 'alice', client-id 'batch', as the default says"
    assert f"request_percentage of user <default>, client-id 'batch' is 50 % of a thread, {shared}" in told
    assert "connection_creation_rate of ip <default> is 20 connections/s" in told

    wrong = meshctl("quota", "set", "--user", "alice", "--connection-creation-rate", "5", check=False)
    assert (wrong.returncode, "is set for IP addresses" in wrong.stderr) == (2, True)
    nobody = meshctl("quota", "set", "--producer-byte-rate", "5", check=False)
    assert (nobody.returncode, "name somebody" in nobody.stderr) == (2, True)

    removed = meshctl("quota", "remove", "--user", "alice", "--key", "consumer_byte_rate").stdout
    assert "consumer_byte_rate of user 'alice' is removed" in removed
    assert "1 quota changed" in meshctl("quota", "remove", "--user", "alice").stdout
    assert "has no such quota" in meshctl("quota", "remove", "--user", "alice").stdout
    history = meshctl("history", "--quotas").stdout
    assert "quota: producer_byte_rate of user 'alice' is 1048576 bytes/s" in history
    assert "a new shop" in history
    meshctl("quota", "remove", "--user-defaults", "--client-id", "batch")
    meshctl("quota", "remove", "--ip-defaults")
    assert "There is no quota" in meshctl("quota", "list").stdout
