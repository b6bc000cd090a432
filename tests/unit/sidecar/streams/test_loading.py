"""Where topologies come from: entry points of installed packages, or a module and a name in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.sidecar.streams.loading import load, references
from services.sidecar.streams.records import TopologyError

SOURCE = """
from services.sidecar.streams import Topology

def counting():
    topology = Topology("counting")
    topology.stream("orders").to("{target}")
    return topology

number = 5
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of an installed package that has the entry point `counting`."""
    name = f"topologies_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE.replace("{target}", "copies"))
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kafka_mesh.topologies]\ncounting = {name}:counting\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_an_entry_point_is_a_topology_by_its_name_alone(package: str) -> None:
    found = references(["counting"])
    assert found == {"counting": f"{package}:counting"}
    assert load(found["counting"]).name == "counting"


def test_a_star_is_all_that_are_installed(package: str) -> None:
    assert references(["*"]) == {"counting": f"{package}:counting"}


def test_a_module_and_a_name_need_no_package(package: str) -> None:
    assert references([f"{package}:counting"]) == {f"{package}:counting": f"{package}:counting"}


def test_an_unknown_name_is_refused_with_those_that_there_are(package: str) -> None:
    with pytest.raises(TopologyError, match=r"no package has a topology 'other' .*: counting\)"):
        references(["other"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent", "AttributeError: module .* has no attribute 'absent'"),
        ("number", "'int' object is not callable"),
    ],
)
def test_what_is_no_topology_is_refused_with_the_reason(package: str, name: str, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        load(f"{package}:{name}")


def test_loaded_again_it_is_what_its_source_says_now(package: str, tmp_path: Path) -> None:
    before = load(f"{package}:counting")
    (tmp_path / f"{package}.py").write_text(SOURCE.replace("{target}", "other-copies"))
    after = load(f"{package}:counting", again=True)
    written = [[target.topic for target in one.plan("app").targets] for one in (before, after)]
    assert written == [["copies"], ["other-copies"]]
