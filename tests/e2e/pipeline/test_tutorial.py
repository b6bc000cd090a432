"""The tutorial of the pipeline, step by step: what the page shows is what its commands print."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import ROOT, steps, take
from tests.integration.pipeline.toolchain import QUICK_JVM

PAGE = ROOT / "docs" / "tutorials" / "pipeline.md"


@pytest.mark.timeout(600)
def test_a_topic_is_archived_read_and_restored_on_the_other_cluster(
    spark_mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_MESH_PIPELINE_DRIVER_JAVA_OPTIONS", QUICK_JVM)
    start, *found = steps(PAGE.read_text(encoding="utf-8"))
    assert start.typed == "make run PIPELINE=1\n", "which has made the mesh"
    assert sum(bool(step.shown) for step in found) >= 9
    instead = {"plums": f"plums-{uuid.uuid4().hex[:6]}", "fruit": str(tmp_path / "fruit")}
    for step in found:
        take(step, spark_mesh.state.parent, instead)
