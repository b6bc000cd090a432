"""README's first five minutes on a running mesh, word for word: what is printed there is what is run here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from local.services import HOST, PORTS
from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import README, blocks, commands, paste, section_of

SECTION = section_of(README, "First five minutes")
LINES = [commands(block) for block in blocks(SECTION)]


@pytest.fixture
def own_rules(mesh: Mesh) -> Iterator[None]:
    """As after `make run`, whatever ran before; afterwards the session's mesh has its rule back."""
    before = home_of(mesh, "apples")
    change = ("rule", "set", "--accept-skip", "--prefix", "apples", "--to")
    mesh.meshctl(*change, "c1", "--reason", "a test")
    yield
    mesh.meshctl(*change, before, "--reason", "the end of a test")


def home_of(mesh: Mesh, topic: str) -> str:
    found: str = explained(mesh, topic)["cluster"]
    return found


def explained(mesh: Mesh, topic: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(mesh.meshctl("explain", topic, "-o", "json").stdout)
    return answer


def test_the_section_has_the_commands_that_are_run_below() -> None:
    programs = [re.sub(r"^.*?\.venv/bin/", "", line) for block in LINES for line in block]
    assert [" ".join(line.split()[:2]) for line in programs] == [
        "kafka-mesh produce",
        "kafka-mesh consume",
        "meshctl rule",
        "meshctl explain",
        "kafka-mesh load",
        "meshctl status",
        "meshctl history",
        "meshctl apply",  # with real addresses: test_envoy_yaml.py
        "kafka-mesh up",  # tests/e2e/local/test_up.py
    ]


def test_the_four_pasted_lines(mesh: Mesh, own_rules: None) -> None:
    folder = mesh.state.parent
    produce, consume, change, why = LINES[0]

    assert "1 record to apples" in paste(produce, folder)
    # the topic is the session's: what other tests wrote may come first
    assert paste(consume, folder).strip()
    assert "prefix apples -> c2" in paste(change, folder)
    told = paste(why, folder)
    assert "apples lives on c2" in told
    assert re.search(r"^-> .*prefix apples +c2", told, re.MULTILINE)


def test_load_status_and_history(mesh: Mesh, own_rules: None) -> None:
    folder = mesh.state.parent
    load, status, history = LINES[1]

    figures = paste(load, folder)
    assert re.search(r"^delivered +[\d,]+ of [\d,]+ records in [1-9]\d\.\d s", figures, re.MULTILINE), figures
    assert "0 missing, 0 duplicated" in figures
    shown = paste(status, folder)
    for part in ("gateway-1", "router-1", "c1", "c2"):
        assert part in shown
    # the session's mesh has more decisions than the history shows, so this test makes one
    mesh.meshctl("rule", "set", "--accept-skip", "--prefix", "apples", "--to", "c2", "--reason", "for the history")
    decided = re.findall(r"^\d+ .*for the history", paste(history, folder), re.MULTILINE)
    assert decided
    assert "127.0.0.1:" not in decided[0], "who, not from where"


def test_the_address_that_other_clients_are_told_is_the_default() -> None:
    assert f"`{HOST}:{PORTS['gateway']}`" in README.read_text(encoding="utf-8")


def test_linked_files_are_there() -> None:
    text = README.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (README.parent / link).exists()]
    assert links
    assert not missing
