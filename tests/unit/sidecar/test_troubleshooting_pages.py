"""The pages for troubleshooting have each error that the sidecar logs, and each that a caller may get."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from services.sidecar.api.status import status_response
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.settings import SidecarSettings
from tests.plain_english import ROOT

LOGGED = ROOT / "docs" / "how-to" / "sidecar-troubleshooting.md"
ANSWERED = ROOT / "docs" / "reference" / "sidecar-errors.md"
SIDECAR = ROOT / "services" / "sidecar"
LEVELS = ("critical", "error", "exception")


def logged() -> Iterator[str]:
    for path in SIDECAR.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(ast.Name("log"), level), args=[event, *_]) if level in LEVELS:
                    yield ast.literal_eval(event)  # a text that is put together could not be looked up


def test_the_page_has_each_logged_error_once_in_order() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", LOGGED.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(set(logged()))


def test_the_page_has_each_code_with_its_status_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| \S", ANSWERED.read_text(encoding="utf-8"), re.MULTILINE)
    kinds = sorted(FaultKind, key=lambda kind: kind.value)
    assert rows == [(kind.value, kind.name, str(status_response(Fault(kind, "")).status_code)) for kind in kinds]


def test_both_pages_name_settings_that_exist() -> None:
    known = {field.upper() for field in SidecarSettings.model_fields} | {kind.name for kind in FaultKind}
    for page in (LOGGED, ANSWERED):
        assert set(re.findall(r"`([A-Z]+_[A-Z_]*[A-Z])`", page.read_text(encoding="utf-8"))) <= known
