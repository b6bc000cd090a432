"""The page about the language of record rules is true."""

from __future__ import annotations

import re
from pathlib import Path

from mesh.record_expressions import NAMES, check_expression
from mesh.record_transforms import json_path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "record-rule-language.md"


def test_each_expression_of_the_page_is_one() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| expression | is true of |")[2].partition("\n\n")[0]
    expressions = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(expressions) >= 9
    for expression in expressions:
        check_expression(expression)


def test_each_name_and_path_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}`" in text
    for path in ("customer.card.number", "orders[*].price", "['name.with.dots']"):
        assert f"`{path}`" in text
        json_path(path)
