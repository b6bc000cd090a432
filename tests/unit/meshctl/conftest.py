"""A scripted control, and `meshctl` run against it as its user would type it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from meshctl.cli import cli
from tests.unit.meshctl.scripted_control import ScriptedControl


@pytest.fixture
def control() -> Iterator[ScriptedControl]:
    server = ScriptedControl()
    yield server
    server.stop()


@pytest.fixture
def meshctl(control: ScriptedControl) -> Callable[..., Result]:
    """`meshctl("rule", "list")`: the exit code and what was written."""

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, env={"MESHCTL_ADDRESS": control.address})

    return run
