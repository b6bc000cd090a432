"""The tutorials for a running mesh, step by step: what a page shows is what its commands print."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import ROOT, steps, take

TUTORIALS = ROOT / "docs" / "tutorials"
NAMES = {"look-inside.md": ("pears",), "move-a-topic.md": ("crates", "depot")}
"""Topics, groups and rules of each page: the session's mesh may have these names already."""
ELSEWHERE = {
    "pipeline.md",  # pipeline/test_tutorial.py
    "secured-mesh.md",  # test_secured_mesh_tutorial.py
    "sidecar.md",  # test_sidecar_tutorial.py
}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def whole_mesh(mesh: Mesh) -> Iterator[Mesh]:
    """The session's mesh; a page may stop at a step for which it has taken control away."""
    yield mesh
    mesh.start("control")


@pytest.mark.parametrize("page", NAMES)
def test_each_step_shows_what_the_page_shows(page: str, whole_mesh: Mesh, tmp_path: Path) -> None:
    instead = {name: f"{name}-{uuid.uuid4().hex[:6]}" for name in NAMES[page]}
    instead["load.txt"] = str(tmp_path / "load.txt")
    found = steps((TUTORIALS / page).read_text(encoding="utf-8"))
    assert sum(bool(step.shown) for step in found) >= 5
    for step in found:
        take(step, whole_mesh.state.parent, instead)


def test_each_tutorial_is_run() -> None:
    assert {page.name for page in TUTORIALS.glob("*.md")} == {*NAMES, *ELSEWHERE}
