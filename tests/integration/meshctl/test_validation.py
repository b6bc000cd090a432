"""Rules of validation through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def by_content(meshctl: Meshctl, folder: Path) -> None:
    """Rules about the content of values."""
    file = folder / "schema.json"
    file.write_text('{"type": "object"}')
    for options, text in (
        (["--by-named-schema"], "a value is valid by the schema that it names"),
        (["--json-of-subject", "orders"], "a value is JSON by the latest schema of subject 'orders'"),
        (["--json-schema", str(file)], 'a value is JSON by the schema {"type": "object"}'),
    ):
        set_ = ["validation", "set", "content", "--topic", "pears", "--mode", "mark", *options]
        assert f"content (mark): for topic 'pears' {text}" in meshctl(*set_).stdout
        assert text in meshctl("validation", "explain", "pears").stdout
    letters = ["validation", "set", "letters", "--topic", "pears", "--acks-all", "--dead-letter-topic", "dead"]
    assert "acks is all; dead letters in topic 'dead'" in meshctl(*letters).stdout
    meshctl("validation", "remove", "letters")
    two = meshctl(*set_, "--by-named-schema", check=False)
    assert (two.returncode, "name one of --by-named-schema" in two.stderr) == (2, True)
    file.write_text('{"type": "nonsense"}')
    useless = meshctl(*set_, check=False)
    assert (useless.returncode, "#/type" in useless.stderr) == (2, True)
    assert text in meshctl("validation", "explain", "pears").stdout, "nothing has changed"
    meshctl("validation", "remove", "content")


def test_the_life_of_rules_of_validation(meshctl: Meshctl, tmp_path: Path) -> None:
    assert "There is no rule" in meshctl("validation", "list").stdout
    small = ["small", "--topic", "orders", "--compression-type", "zstd", "--max-message-bytes", "262144"]
    text = "small (enforce): for topic 'orders' compression.type is zstd, max.message.bytes is 262144"
    made = meshctl("validation", "set", *small, "--reason", "disks are full").stdout
    assert text in made
    assert "1 rule changed (revision " in made
    revision = made.rpartition("(revision ")[2].strip(" )\n")
    assert "0 rules changed" in meshctl("validation", "set", *small).stdout
    safe = ["safe", "--topic-prefix", "", "--acks-all", "--enable-idempotence", "--mode", "observe"]
    meshctl("validation", "set", *safe)
    assert meshctl("validation", "list").stdout.splitlines() == [
        "safe (observe): for every topic acks is all, enable.idempotence is true",
        text,
    ]
    assert meshctl("validation", "list", "--at", revision).stdout.splitlines() == [text]
    assert meshctl("validation", "explain", "pears").stdout.startswith("safe (observe)")
    told = json.loads(meshctl("validation", "explain", "orders", "-o", "json").stdout)
    assert [each["rule_id"] for each in told["rules"]] == ["safe", "small"]

    keyed = ["keyed", "--topic", "pears", "--key", "required", "--required-header", "trace", "--max-record-bytes", "9"]
    assert "a key is required, header 'trace' is required, a record has at most 9 bytes" in meshctl(
        "validation", "set", *keyed, "--tombstones-forbidden"
    ).stdout.replace("tombstones are forbidden, ", "")
    meshctl("validation", "remove", "keyed")
    typed = ["typed", "--topic", "pears", "--value-schema", "subject", "--store-unchecked"]
    named = "a value names a registered schema of subject TOPIC-value (stored while the registry is away)"
    assert named in meshctl("validation", "set", *typed).stdout
    meshctl("validation", "remove", "typed")
    today = ["today", "--topic-prefix", "payments.", "--message-format-v2", "--key-by-named-schema"]
    assert "the message format is v2, a key is valid by the schema" in meshctl("validation", "set", *today).stdout
    meshctl("validation", "remove", "today")
    names = ["names", "--topic-prefix", "", "--new-name-regex", "payments[.][a-z-]+", "--principal", "User:pay-*"]
    policy = "names (enforce): for every topic the name of a topic that is created by User:pay-* matches payments[.]"
    assert policy in meshctl("validation", "set", *names).stdout
    mixed = meshctl("validation", "set", *names, "--acks-all", check=False)
    assert (mixed.returncode, "make two rules" in mixed.stderr) == (2, True)
    meshctl("validation", "remove", "names")
    alone = meshctl("validation", "set", "r", "--topic", "a", "--acks-all", "--store-unchecked", check=False)
    assert (alone.returncode, "the rule asks for none" in alone.stderr) == (2, True)
    by_content(meshctl, tmp_path)

    nothing = meshctl("validation", "set", "none", "--topic", "orders", check=False)
    assert (nothing.returncode, "name a condition" in nothing.stderr) == (2, True)
    both = meshctl("validation", "set", "r", "--topic", "a", "--topic-prefix", "b", "--acks-all", check=False)
    assert (both.returncode, "either --topic or --topic-prefix" in both.stderr) == (2, True)
    wrong = meshctl("validation", "set", "Big", "--topic", "orders", "--acks-all", check=False)
    assert (wrong.returncode, "is no id" in wrong.stderr) == (2, True)

    assert "small is removed" in meshctl("validation", "remove", "small").stdout
    assert "0 rules changed" in meshctl("validation", "remove", "small").stdout
    history = meshctl("history", "--validation").stdout
    assert f"validation: rule {text}" in history
    assert "disks are full" in history
    meshctl("validation", "remove", "safe")
    assert "No rule counts for topic 'orders'" in meshctl("validation", "explain", "orders").stdout
