"""How a service's process gets its settings, and what it says about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from mesh.settings import Address, AddressList, ServiceSettings, load


class WalkSettings(ServiceSettings, service="walk"):
    """A service that walks."""

    listen: Address = "127.0.0.1:1234"
    peers: AddressList = Field(default=("a:1",), min_length=1)
    pace: int


def faults(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        load(WalkSettings, [*arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MESH_WALK_PACE", "3")


def test_environment_goes_before_file_and_file_before_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("walk: {pace: 9, listen: 'b:2'}\nother: {listen: 'c:3'}\n", encoding="utf-8")
    settings = load(WalkSettings, ["--config", str(file)])
    assert (settings.pace, settings.listen, settings.peers) == (3, "b:2", ("a:1",))


def test_each_fault_is_one_line_with_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_MESH_WALK_PEERS", "nonsense")
    monkeypatch.delenv("KAFKA_MESH_WALK_PACE")
    peers, missing = faults(capsys)
    assert peers.startswith("kafka-mesh walk: peers.0 (KAFKA_MESH_WALK_PEERS): 'nonsense' is not an address")
    assert missing == "kafka-mesh walk: pace (KAFKA_MESH_WALK_PACE): Field required"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[", "is not YAML: while parsing"),
        ("- 1", "expected a mapping of service names, got list"),
        ("listen: 'a:1'", "'listen' is no section; settings of this service stand under 'walk:'"),
        ("walk: {nosuch: 1}", "nosuch"),
    ],
)
def test_a_wrong_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, expected: str) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(content, encoding="utf-8")
    (line,) = faults(capsys, "--config", str(file))
    assert expected in line
    assert str(file) in line or "KAFKA_MESH_WALK_NOSUCH" in line


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(capsys, "--config", "/nonexistent") == ["kafka-mesh walk: /nonexistent: No such file or directory"]


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(WalkSettings, ["--help"])
    shown = capsys.readouterr().out
    assert "KAFKA_MESH_WALK_LISTEN  [127.0.0.1:1234]" in shown
    assert "KAFKA_MESH_WALK_PACE  [required]" in shown
