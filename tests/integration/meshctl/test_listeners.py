"""Listeners of gateways through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_listeners(meshctl: Meshctl) -> None:
    assert "Nothing is decided" in meshctl("listener", "list").stdout
    outside = ["outside", "--security", "SASL_SSL", "--port", "9094", "--advertised", "kafka.example.com:9094"]
    text = "outside: SASL_SSL, SCRAM-SHA-512 SCRAM-SHA-256, port 9094, advertised kafka.example.com:9094"
    made = meshctl("listener", "set", *outside, "--reason", "clients beyond the network").stdout
    assert text in made
    revision = made.rpartition("(revision ")[2].strip(" )\n")
    assert "0 listeners changed" in meshctl("listener", "set", *outside).stdout
    certified = ["inside", "--security", "ssl", "--certificates", "required", "--mapping-rules", "DEFAULT"]
    assert "inside: SSL, certificates required, principals by DEFAULT" in meshctl("listener", "set", *certified).stdout
    assert "plain: closed" in meshctl("listener", "close", "plain").stdout
    assert [line.partition(":")[0] for line in meshctl("listener", "list").stdout.splitlines()] == [
        "inside",
        "outside",
        "plain",
    ]
    assert meshctl("listener", "list", "--at", revision).stdout.splitlines() == [text]
    assert meshctl("listener", "explain", "outside").stdout.splitlines() == [text]
    told = json.loads(meshctl("listener", "list", "-o", "json").stdout)
    assert [each["name"] for each in told["listeners"]] == ["inside", "outside", "plain"]

    taken = meshctl("listener", "set", "zone", "--security", "SSL", "--port", "9094", check=False)
    assert (taken.returncode != 0, "which listener 'outside' has" in taken.stderr) == (True, True)
    wrong = meshctl("listener", "set", "zone", "--security", "SSL", "--mechanism", "PLAIN", check=False)
    assert (wrong.returncode, "nobody logs in at SSL" in wrong.stderr) == (2, True)
    unknown = meshctl("listener", "set", "zone", "--security", "TLS", check=False)
    assert (unknown.returncode, "--security" in unknown.stderr) == (2, True)

    gone = meshctl("listener", "remove", "plain", "--reason", "not yet").stdout
    assert "plain is as the settings of gateways say" in gone
    history = meshctl("history", "--listeners").stdout
    assert f"listener {text}" in history
    assert "clients beyond the network" in history
    meshctl("listener", "remove", "outside")
    meshctl("listener", "remove", "inside")
