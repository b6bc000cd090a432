"""SECURITY.md claims nothing without a test: each *cannot* names a test that exists and is not skipped."""

from __future__ import annotations

import ast
import re

import pytest

from tests.plain_english import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
CLAIM = re.compile(r"\b(cannot|can't|can not)\b", re.IGNORECASE)
MODEL = PAGE.partition("## Threat model")[2]


def points(text: str = MODEL) -> list[str]:
    return [" ".join(each.split()) for each in re.findall(r"^- (.*?)(?=^- |^#|\Z)", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED.findall(PAGE))))
def test_each_named_test_exists_and_runs(file: str, test: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    found = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    (function,) = [each for each in found if each.name == test]
    assert "skip" not in "".join(ast.unparse(each) for each in function.decorator_list)


def test_each_thing_that_an_attacker_cannot_do_names_its_test() -> None:
    claims = [point for point in points() if CLAIM.search(point)]
    assert len(claims) >= 20
    assert not [claim for claim in claims if not NAMED.search(claim)]


def test_each_attacker_can_do_something_and_cannot_do_other_things() -> None:
    attackers = re.split(r"^### ", MODEL, flags=re.MULTILINE)[1:]
    assert len(attackers) == 6
    for attacker in attackers:
        claims = [bool(CLAIM.search(point)) for point in points(attacker)]
        assert {*claims} == {True, False}, attacker
