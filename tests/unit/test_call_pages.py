"""The pages of calls and options show what the contracts and commands have."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from docs import calls, commands
from docs.proto_comments import comments
from services.sidecar.api.contract import DOCUMENT, METHODS, REST_V2_DOCUMENT


@pytest.mark.parametrize("page", [calls.GRPC, calls.OPERATIONS], ids=lambda page: page.stem)
def test_a_page_of_calls_has_the_tables_that_make_reference_writes(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == calls.files()[page], "run: make reference"


def test_the_page_of_options_has_what_make_reference_writes() -> None:
    assert commands.PAGE.read_text(encoding="utf-8") == commands.written(), "run: make reference"


def test_each_method_of_the_contract_is_on_the_page_with_its_meaning() -> None:
    page = calls.GRPC.read_text(encoding="utf-8")
    for service in calls.services():
        for method in service.methods:
            assert f"| `{method.name}` |" in page
            assert comments().get(method.full_name), f"{method.full_name} has no comment"


@pytest.mark.parametrize("document", [DOCUMENT, REST_V2_DOCUMENT], ids=lambda document: document.stem)
def test_each_operation_of_the_sidecar_is_on_the_page(document: Path) -> None:
    page = calls.OPERATIONS.read_text(encoding="utf-8")
    paths = yaml.safe_load(document.read_text(encoding="utf-8"))["paths"]
    named = [f"`{method.upper()} {path}`" for path, each in paths.items() for method in each if method in METHODS]
    assert [name for name in named if name not in page] == []


def test_each_option_of_each_command_says_what_it_means() -> None:
    for path, command in commands.commands():
        assert command.help, f"meshctl {path} has no help"
        for parameter in command.params:
            assert not hasattr(parameter, "help") or parameter.help, f"meshctl {path}: {parameter.name} has no help"
