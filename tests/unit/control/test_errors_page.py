"""The page about control's errors has each reason that control gives, with its gRPC status, in order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.plain_english import ROOT

PAGE = ROOT / "docs" / "reference" / "control-errors.md"
STATUSES = {
    "NotAllowed": "FAILED_PRECONDITION",
    "Conflict": "ABORTED",
    "Unavailable": "UNAVAILABLE",
    "unavailable": "UNAVAILABLE",
    "deadline_exceeded": "DEADLINE_EXCEEDED",
}
"""By the class of the refusal, or the function that makes its status (`mesh/rpc/errors.py`)."""
REASON = re.compile(r"[A-Z]+(_[A-Z]+)+")


def given() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "services" / "control").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(made_by) | ast.Attribute(attr=made_by), args=[ast.Constant(str(reason)), *_]
                ) if REASON.fullmatch(reason):
                    yield reason, STATUSES[made_by]


def test_the_page_has_each_reason_once_in_order() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Reasons\n")[2]
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| [^|]+ \|", text, re.MULTILINE)
    assert rows == sorted(set(given()))
