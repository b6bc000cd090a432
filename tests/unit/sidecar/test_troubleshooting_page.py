"""The page for troubleshooting has each event that the sidecar logs as an error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.plain_english import ROOT

PAGE = ROOT / "docs" / "how-to" / "sidecar-troubleshooting.md"
SIDECAR = ROOT / "services" / "sidecar"
LEVELS = ("critical", "error", "exception")


def errors() -> Iterator[str]:
    for path in SIDECAR.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(ast.Name("log"), level), args=[event, *_]) if level in LEVELS:
                    yield ast.literal_eval(event)  # a text that is put together could not be looked up


def test_the_page_has_each_error_once_in_order() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(set(errors()))
