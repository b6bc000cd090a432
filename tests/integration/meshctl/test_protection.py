"""Rules of protection through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_the_life_of_rules_of_protection(meshctl: Meshctl) -> None:
    assert "There is no rule" in meshctl("protection", "list").stdout
    pii = ["pii", "--topic", "orders", "--json-field", "customer.email", "--json-field", "phones[*]", "--key-id", "pii"]
    readers = ["--reader", "User:crm", "--reader", "Group:support"]
    text = (
        "pii: for topic 'orders' customer.email, phones[*] of json is encrypted by key 'pii', User:crm, Group:support "
        "read it, others get a mask"
    )
    made = meshctl("protection", "set", *pii, *readers, "--reason", "personal data").stdout
    assert text in made
    assert "1 rule changed (revision " in made
    revision = made.rpartition("(revision ")[2].strip(" )\n")
    assert "0 rules changed" in meshctl("protection", "set", *pii, *readers).stdout
    meshctl(
        "protection", "set", "cards", "--topic-prefix", "pay.", "--value", "--key-id", "cards", "--others", "refusal"
    )
    assert meshctl("protection", "list").stdout.splitlines() == [
        "cards: for topics 'pay.'* the value is encrypted by key 'cards', nobody reads it, others get a refusal",
        text,
    ]
    assert meshctl("protection", "list", "--at", revision).stdout.splitlines() == [text]
    told = json.loads(meshctl("protection", "explain", "pay.in", "-o", "json").stdout)
    assert [each["rule_id"] for each in told["rules"]] == ["cards"]

    twice = meshctl("protection", "set", "again", "--topic", "orders", "--value", check=False)
    assert twice.returncode != 0
    assert "would both protect the whole value of one topic" in twice.stderr
    nothing = meshctl("protection", "set", "none", "--topic", "orders", check=False)
    assert (nothing.returncode, "say what is protected" in nothing.stderr) == (2, True)
    both = meshctl("protection", "set", "r", "--topic", "a", "--topic-prefix", "b", "--value", check=False)
    assert (both.returncode, "either --topic or --topic-prefix" in both.stderr) == (2, True)
    wrong = meshctl("protection", "set", "r", "--topic", "a", "--avro-field", "a..b", check=False)
    assert (wrong.returncode, "at character 2" in wrong.stderr) == (2, True)

    assert "pii is removed" in meshctl("protection", "remove", "pii").stdout
    history = meshctl("history", "--protection").stdout
    assert f"protection: rule {text}" in history
    assert "personal data" in history
    meshctl("protection", "remove", "cards")
    assert "No rule counts for topic 'orders'" in meshctl("protection", "explain", "orders").stdout
