"""`meshctl dashboard` finds the console, and opens a browser unless told otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from meshctl.cli import cli


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The addresses that a browser got. The local mesh has its console at a port of its own."""
    monkeypatch.setenv("KAFKA_MESH_STATE_DIR", str(tmp_path))
    (tmp_path / "endpoints.json").write_text(json.dumps({"console": "127.0.0.1:18999"}))
    found: list[str] = []

    def launch(url: str) -> int:
        found.append(url)
        return 0

    monkeypatch.setattr(click, "launch", launch)
    return found


def test_the_console_of_the_local_mesh_is_printed_and_opened(opened: list[str]) -> None:
    done = CliRunner().invoke(cli, ["dashboard"])
    assert done.output == "http://127.0.0.1:18999/\n"
    assert opened == ["http://127.0.0.1:18999/"]


def test_nothing_is_opened_where_that_is_not_wanted(opened: list[str]) -> None:
    done = CliRunner().invoke(cli, ["dashboard", "--no-open"])
    assert done.output == "http://127.0.0.1:18999/\n"
    assert not opened


def test_a_given_console_comes_first(opened: list[str]) -> None:
    CliRunner().invoke(cli, ["dashboard"], env={"MESHCTL_CONSOLE_URL": "https://mesh.example"})
    CliRunner().invoke(cli, ["dashboard", "--url", "https://other.example"])
    assert opened == ["https://mesh.example", "https://other.example"]


def test_a_file_that_cannot_be_read_is_named(opened: list[str], tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text("{")
    done = CliRunner().invoke(cli, ["dashboard"])
    assert done.exit_code == 2
    assert "endpoints.json can't be read" in done.output
    assert not opened
