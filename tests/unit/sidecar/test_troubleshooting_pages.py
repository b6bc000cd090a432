"""The page of errors has each error that a caller of the sidecar may get. test_troubleshooting_pages.py has its log."""

from __future__ import annotations

import re

from services.sidecar.api.status import status_response
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.settings import SidecarSettings
from tests.plain_english import ROOT

ANSWERED = ROOT / "docs" / "reference" / "sidecar-errors.md"


def test_the_page_has_each_code_with_its_status_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| \S", ANSWERED.read_text(encoding="utf-8"), re.MULTILINE)
    kinds = sorted(FaultKind, key=lambda kind: kind.value)
    assert rows == [(kind.value, kind.name, str(status_response(Fault(kind, "")).status_code)) for kind in kinds]


def test_the_page_names_settings_that_exist() -> None:
    known = {field.upper() for field in SidecarSettings.model_fields} | {kind.name for kind in FaultKind}
    assert set(re.findall(r"`([A-Z]+_[A-Z_]*[A-Z])`", ANSWERED.read_text(encoding="utf-8"))) <= known
