"""The pages for troubleshooting have each event that a service logs at the levels of its page."""

from __future__ import annotations

import re
from itertools import product

import pytest
from pydantic_settings import BaseSettings

from docs.log_events import logged
from services.control.settings import ControlSettings
from services.gateway.settings import GatewaySettings
from services.pipeline.settings import PipelineSettings
from services.router.settings import RouterSettings
from services.sidecar.faults import FaultKind
from services.sidecar.settings import SidecarSettings
from tests.plain_english import ROOT

ERRORS = frozenset({"critical", "error", "exception"})
SECTIONS = {"Errors": ERRORS, "Warnings": frozenset({"warning"})}
CODES = {"gateway": {"CORRUPT_MESSAGE"}, "sidecar": {kind.name for kind in FaultKind}}
"""Error codes that a page may name."""
SETTINGS: dict[str, type[BaseSettings]] = {
    "control": ControlSettings,
    "gateway": GatewaySettings,
    "pipeline": PipelineSettings,
    "router": RouterSettings,
    "sidecar": SidecarSettings,
}


def page_of(service: str) -> str:
    return (ROOT / "docs" / "how-to" / f"{service}-troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("service", "section"), list(product(SETTINGS, SECTIONS)))
def test_the_page_has_each_logged_event_once_in_order(service: str, section: str) -> None:
    _, found, text = page_of(service).partition(f"\n## {section}\n")
    assert found
    listed = re.findall(r"^\| `([^`]+)` \|", text.partition("\n## ")[0], re.MULTILINE)
    assert listed == sorted({each.event for each in logged(service) if each.level in SECTIONS[section]})


@pytest.mark.parametrize("service", SETTINGS)
def test_the_page_names_settings_that_exist(service: str) -> None:
    known = {field.upper() for field in SETTINGS[service].model_fields} | CODES.get(service, set())
    assert set(re.findall(r"`([A-Z]+_[A-Z_]*[A-Z])`", page_of(service))) <= known
